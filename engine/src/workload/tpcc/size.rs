//! How large a database is: warehouses, what each holds, how much room there is for orders to come.

use super::key::{MOST_CLIENTS, MOST_CUSTOMERS, MOST_WAREHOUSES};
use super::random::LAST_NAMES;
use crate::workload::Scale;
use crate::workload::params::{ParamError, Params};

/// Districts of a warehouse, in the specification and here.
pub const DISTRICTS: u64 = 10;

/// Sizes of a database.
///
/// The specification's are the defaults: 3000 customers and orders in each of ten districts, 100 000 items. Smaller ones
/// keep its proportions: a last name for each of up to 1000 customers, three orders of ten not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Nodes of the cluster; warehouse `w` is node `w mod nodes`'s.
    pub nodes: u64,
    /// Workers per node.
    pub workers: u64,
    /// Warehouses.
    pub warehouses: u64,
    /// Customers of each district.
    pub customers: u64,
    /// Orders of each district at the start, each of another customer.
    pub orders: u64,
    /// Items, of each of which every warehouse has a stock and every node a copy.
    pub items: u64,
    /// Orders (and as many payments and more) that each district has room for beside the first ones, on average over the
    /// districts of a node.
    pub order_room: u64,
}

impl Size {
    /// The sizes that parameters ask for, on a cluster of `scale`.
    ///
    /// # Errors
    /// If they cannot be.
    pub(super) fn new(scale: Scale, p: &Params) -> Result<Size, ParamError> {
        let asked = p.int("warehouses");
        let size = Size {
            nodes: scale.nodes.into(),
            workers: scale.workers.into(),
            warehouses: if asked == 0 { scale.threads() } else { asked },
            customers: p.int("customers_per_district"),
            orders: p.int("orders_per_district"),
            items: p.int("items"),
            order_room: p.int("order_room_per_district"),
        };
        if size.warehouses > MOST_WAREHOUSES {
            return Err(p.refuse(format!(
                "{} warehouses, one for each worker thread; {MOST_WAREHOUSES} are possible",
                size.warehouses
            )));
        }
        if size.orders > size.customers {
            return Err(p.refuse(format!(
                "orders_per_district={} of customers_per_district={}: each order is another customer's",
                size.orders, size.customers
            )));
        }
        debug_assert!(size.customers <= MOST_CUSTOMERS && scale.threads() <= MOST_CLIENTS);
        Ok(size)
    }

    /// Different last names.
    pub fn last_names(&self) -> u64 {
        self.customers.min(LAST_NAMES)
    }

    /// The last order that has been delivered at the start: seven of ten.
    pub fn delivered(&self) -> u64 {
        self.orders - self.orders * 3 / 10
    }

    /// Districts of all warehouses.
    pub fn districts(&self) -> u64 {
        self.warehouses * DISTRICTS
    }

    /// Warehouses of a node.
    pub fn warehouses_of(&self, node: u64) -> u64 {
        (self.warehouses + self.nodes - 1 - node % self.nodes) / self.nodes
    }

    /// The node of a warehouse.
    pub fn node_of(&self, warehouse: u64) -> u64 {
        warehouse % self.nodes
    }

    /// The warehouse that the `draw`th of the terminals of a worker belongs to: a node's warehouses are dealt out to its
    /// workers; where there are more workers, several share one; where a node has none, its terminals are those of any.
    pub(super) fn home(&self, node: u64, worker: u64, draw: u64) -> u64 {
        let here = self.warehouses_of(node);
        if here == 0 {
            return draw % self.warehouses;
        }
        let local = if here <= self.workers {
            worker % here
        } else {
            let own = (here + self.workers - 1 - worker % self.workers) / self.workers;
            worker % self.workers + draw % own * self.workers
        };
        local * self.nodes + node % self.nodes
    }

    /// Warehouses that are on other nodes than `warehouse`.
    pub(super) fn elsewhere(&self, warehouse: u64) -> u64 {
        self.warehouses - self.warehouses_of(self.node_of(warehouse))
    }

    /// The `n`th of them, from 0.
    pub(super) fn nth_elsewhere(&self, warehouse: u64, n: u64) -> u64 {
        let (others, node) = (self.nodes - 1, self.node_of(warehouse));
        let place = n % others;
        n / others * self.nodes + if place < node { place } else { place + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(nodes: u64, workers: u64, warehouses: u64) -> Size {
        Size { nodes, workers, warehouses, customers: 30, orders: 30, items: 100, order_room: 10 }
    }

    #[test]
    fn warehouses_are_dealt_out_to_nodes_and_workers_whatever_their_number() {
        for nodes in 1..=5 {
            for workers in 1..=4 {
                for warehouses in 1..=23 {
                    let s = size(nodes, workers, warehouses);
                    let of_nodes: u64 = (0..nodes).map(|n| s.warehouses_of(n)).sum();
                    assert_eq!(of_nodes, warehouses);
                    let mut homes = std::collections::BTreeSet::new();
                    for node in 0..nodes {
                        for worker in 0..workers {
                            for draw in 0..30 {
                                let home = s.home(node, worker, draw);
                                assert!(home < warehouses);
                                assert!(s.node_of(home) == node || s.warehouses_of(node) == 0);
                                homes.insert(home);
                            }
                        }
                    }
                    assert!(homes.into_iter().eq(0..warehouses), "every warehouse has terminals: {s:?}");
                }
            }
        }
    }

    #[test]
    fn warehouses_elsewhere_are_all_those_of_other_nodes() {
        for (nodes, warehouses) in [(2, 2), (2, 5), (3, 7), (4, 4), (4, 9), (5, 3)] {
            let s = size(nodes, 1, warehouses);
            for home in 0..warehouses {
                let others: Vec<u64> = (0..s.elsewhere(home)).map(|n| s.nth_elsewhere(home, n)).collect();
                let expected: Vec<u64> =
                    (0..warehouses).filter(|&w| s.node_of(w) != s.node_of(home)).collect();
                assert_eq!(others, expected, "{nodes} nodes, {warehouses} warehouses, home {home}");
            }
        }
        assert_eq!(size(1, 2, 8).elsewhere(3), 0);
    }

    #[test]
    fn three_orders_of_ten_are_not_delivered() {
        let mut s = size(1, 1, 1);
        (s.customers, s.orders) = (3000, 3000);
        assert_eq!((s.delivered(), s.last_names()), (2100, 1000));
        (s.customers, s.orders) = (20, 7);
        assert_eq!((s.delivered(), s.last_names()), (5, 20));
    }
}
