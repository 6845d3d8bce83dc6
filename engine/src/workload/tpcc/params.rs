//! Parameters of TPC-C and of its preset `tpcc-no`.

use super::key::{MOST_CUSTOMERS, MOST_WAREHOUSES};
use crate::workload::params::{Kind, Param};

const COUNT: usize = 18;

/// The parameters, with the specification's values as defaults.
pub const PARAMS: &[Param; COUNT] = &[
    Param::int("warehouses", 0, 0, MOST_WAREHOUSES, "warehouses of the cluster; 0 is one per worker thread"),
    Param::int("customers_per_district", 3_000, 1, MOST_CUSTOMERS, "customers in each of ten districts")
        .scaled(30),
    Param::int(
        "orders_per_district",
        3_000,
        1,
        MOST_CUSTOMERS,
        "orders at the start, at most one per customer",
    )
    .scaled(10),
    Param::int("items", 100_000, 1, 10_000_000, "items, of which every warehouse has a stock").scaled(3_000),
    Param::int(
        "order_room_per_district",
        5_000,
        0,
        10_000_000,
        "orders there is room for beside the first ones",
    )
    .scaled(256),
    Param::int("new_order", 45, 0, 1000, "weight of new-order in the mix"),
    Param::int("payment", 43, 0, 1000, "weight of payment"),
    Param::int("order_status", 4, 0, 1000, "weight of order-status"),
    Param::int("delivery", 4, 0, 1000, "weight of delivery"),
    Param::int("stock_level", 4, 0, 1000, "weight of stock-level"),
    Param::real("rollback_share", 0.01, 0.0, 1.0, "share of new-orders that name an unused item"),
    Param::real("remote_item_share", 0.01, 0.0, 1.0, "share of order lines supplied by another warehouse"),
    Param::flag(
        "always_distributed",
        false,
        "suppliers are on other nodes, at least one in each new-order; needs two nodes with warehouses",
    ),
    Param::real("remote_payment_share", 0.15, 0.0, 1.0, "share of payments by another warehouse's customers"),
    Param::real(
        "by_last_name_share",
        0.6,
        0.0,
        1.0,
        "share of payments and order-status by the customer's last name",
    ),
    Param::real(
        "item_zipf",
        -1.0,
        -1.0,
        4.0,
        "items by Zipf's law with this exponent, 0 all alike; -1 as specified, by NURand",
    ),
    Param::flag("together", true, "new-order fetches all its records at once (speculative execution)"),
    Param::int("population_seed", 1, 0, u64::MAX, "seed of the records' first contents"),
];

/// The parameters of `tpcc-no`: new-order alone, every line of it supplied by another node.
pub const NO_PARAMS: &[Param; COUNT] = &{
    let mut params = *PARAMS;
    let mut i = 0;
    while i < COUNT {
        // What the preset sets; the names are told apart by what is in them, since strings cannot be compared here.
        match (params[i].name.as_bytes(), params[i].kind) {
            (b"payment" | b"order_status" | b"delivery" | b"stock_level", Kind::Int { min, max, .. }) => {
                params[i].kind = Kind::Int { default: 0, min, max };
            }
            (b"remote_item_share", Kind::Real { min, max, .. }) => {
                params[i].kind = Kind::Real { default: 1.0, min, max };
            }
            (b"always_distributed", _) => params[i].kind = Kind::Flag { default: true },
            _ => {}
        }
        i += 1;
    }
    params
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preset_differs_in_mix_and_suppliers_alone() {
        let changed: Vec<_> =
            PARAMS.iter().zip(NO_PARAMS).filter(|(a, b)| a != b).map(|(a, _)| a.name).collect();
        let expected =
            ["payment", "order_status", "delivery", "stock_level", "remote_item_share", "always_distributed"];
        assert_eq!(changed, expected);
    }
}
