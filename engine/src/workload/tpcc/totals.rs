//! Sums over the whole database, which each transaction changes by what it says: nothing may be lost or made up.

use std::ops::AddAssign;

/// One sum. Those up to [`Total::Stocks`] never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    /// Warehouses.
    Warehouses,
    /// Districts.
    Districts,
    /// Customers.
    Customers,
    /// Customers by name.
    Names,
    /// Items, all copies.
    Items,
    /// Stocks.
    Stocks,
    /// Orders.
    Orders,
    /// Orders not delivered.
    NewOrders,
    /// Orders by customer.
    CustomerOrders,
    /// Lines of orders.
    Lines,
    /// Payments.
    Payments,
    /// D_NEXT_O_ID.
    NextOrders,
    /// W_YTD.
    WarehousesPaid,
    /// D_YTD.
    DistrictsPaid,
    /// C_YTD_PAYMENT.
    CustomersPaid,
    /// H_AMOUNT.
    HistoryPaid,
    /// C_BALANCE.
    Balances,
    /// C_PAYMENT_CNT.
    CustomerPayments,
    /// C_DELIVERY_CNT.
    Deliveries,
    /// Orders that have a carrier.
    OrdersDelivered,
    /// S_YTD.
    Quantity,
    /// S_ORDER_CNT.
    StockOrders,
    /// S_REMOTE_CNT.
    RemoteLines,
}

/// All sums, in order, with the names that messages use.
pub const TOTALS: [(&str, Total); 23] = [
    ("warehouses", Total::Warehouses),
    ("districts", Total::Districts),
    ("customers", Total::Customers),
    ("customers by name", Total::Names),
    ("items", Total::Items),
    ("stocks", Total::Stocks),
    ("orders", Total::Orders),
    ("new orders", Total::NewOrders),
    ("orders by customer", Total::CustomerOrders),
    ("order lines", Total::Lines),
    ("payments", Total::Payments),
    ("D_NEXT_O_ID", Total::NextOrders),
    ("W_YTD", Total::WarehousesPaid),
    ("D_YTD", Total::DistrictsPaid),
    ("C_YTD_PAYMENT", Total::CustomersPaid),
    ("H_AMOUNT", Total::HistoryPaid),
    ("C_BALANCE", Total::Balances),
    ("C_PAYMENT_CNT", Total::CustomerPayments),
    ("C_DELIVERY_CNT", Total::Deliveries),
    ("orders delivered", Total::OrdersDelivered),
    ("S_YTD", Total::Quantity),
    ("S_ORDER_CNT", Total::StockOrders),
    ("S_REMOTE_CNT", Total::RemoteLines),
];

/// The sums: of records, or what transactions changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Totals([i64; TOTALS.len()]);

impl Totals {
    /// Adds to one of them.
    #[inline]
    pub fn add(&mut self, total: Total, by: i64) {
        let sum = &mut self.0[total as usize];
        *sum = sum.wrapping_add(by);
    }

    /// One of them.
    pub fn get(&self, total: Total) -> i64 {
        self.0[total as usize]
    }

    /// The sums that are not `self` and `effects` together, in words.
    pub(super) fn differences(&self, effects: &Totals, now: &Totals) -> Vec<String> {
        let differ = TOTALS
            .iter()
            .filter(|&&(_, total)| self.get(total).wrapping_add(effects.get(total)) != now.get(total));
        differ
            .map(|&(name, total)| {
                let (before, change, found) = (self.get(total), effects.get(total), now.get(total));
                format!("{name}: {before} at first and {change:+} by transactions, found {found}")
            })
            .collect()
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, rhs: Totals) {
        for (sum, by) in self.0.iter_mut().zip(rhs.0) {
            *sum = sum.wrapping_add(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_places_agree() {
        assert!(TOTALS.iter().enumerate().all(|(place, (_, total))| *total as usize == place));
    }

    #[test]
    fn what_does_not_add_up_is_named() {
        let (mut before, mut effects, mut now) = (Totals::default(), Totals::default(), Totals::default());
        before.add(Total::Orders, 10);
        effects.add(Total::Orders, 5);
        now.add(Total::Orders, 15);
        assert!(before.differences(&effects, &now).is_empty());
        effects.add(Total::Balances, -7);
        assert_eq!(
            before.differences(&effects, &now),
            ["C_BALANCE: 0 at first and -7 by transactions, found 0"]
        );
    }
}
