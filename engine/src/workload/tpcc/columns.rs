//! The columns of TPC-C's nine tables (clause 1.3), all of them, and of the two indexes beside them.
//!
//! Identifiers that are in a record's key are not repeated in its payload. Money is in cents, taxes and discounts in
//! ten-thousandths, both signed. Dates are nanoseconds since the fabric began, plus two; population's date is 1, and 0
//! is null.

use crate::workload::columns::columns;

columns! {
    /// A warehouse.
    warehouse {
        NAME: text(10),
        STREET_1: text(20),
        STREET_2: text(20),
        CITY: text(20),
        STATE: text(2),
        ZIP: text(9),
        TAX: num,
        YTD: num,
    }
}

columns! {
    /// A district.
    district {
        NAME: text(10),
        STREET_1: text(20),
        STREET_2: text(20),
        CITY: text(20),
        STATE: text(2),
        ZIP: text(9),
        TAX: num,
        YTD: num,
        NEXT_O_ID: num,
    }
}

columns! {
    /// A customer.
    customer {
        FIRST: text(16),
        MIDDLE: text(2),
        LAST: text(16),
        STREET_1: text(20),
        STREET_2: text(20),
        CITY: text(20),
        STATE: text(2),
        ZIP: text(9),
        PHONE: text(16),
        SINCE: num,
        CREDIT: text(2),
        CREDIT_LIM: num,
        DISCOUNT: num,
        BALANCE: num,
        YTD_PAYMENT: num,
        PAYMENT_CNT: num,
        DELIVERY_CNT: num,
        DATA: text(500),
    }
}

columns! {
    /// A customer in the order of last name, then first name: the customer's number.
    customer_name {
        C_ID: num,
    }
}

columns! {
    /// A payment. The customer's warehouse counts from 0, as in keys.
    history {
        C_ID: num,
        C_D_ID: num,
        C_W_ID: num,
        D_ID: num,
        DATE: num,
        AMOUNT: num,
        DATA: text(24),
    }
}

columns! {
    /// An order that has not been delivered: its number.
    new_order {
        O_ID: num,
    }
}

columns! {
    /// An order. A carrier of 0 is null.
    order {
        C_ID: num,
        ENTRY_D: num,
        CARRIER_ID: num,
        OL_CNT: num,
        ALL_LOCAL: num,
    }
}

columns! {
    /// An order in the order of its customer: its number.
    customer_order {
        O_ID: num,
    }
}

columns! {
    /// A line of an order. The supplying warehouse counts from 0, as in keys.
    order_line {
        I_ID: num,
        SUPPLY_W_ID: num,
        DELIVERY_D: num,
        QUANTITY: num,
        AMOUNT: num,
        DIST_INFO: text(24),
    }
}

columns! {
    /// An item.
    item {
        IM_ID: num,
        NAME: text(24),
        PRICE: num,
        DATA: text(50),
    }
}

columns! {
    /// A warehouse's stock of an item. `DIST_01` is the first of ten texts of 24 bytes, one for each district.
    stock {
        QUANTITY: num,
        YTD: num,
        ORDER_CNT: num,
        REMOTE_CNT: num,
        DIST_01: text(24),
        DIST_02: text(24),
        DIST_03: text(24),
        DIST_04: text(24),
        DIST_05: text(24),
        DIST_06: text(24),
        DIST_07: text(24),
        DIST_08: text(24),
        DIST_09: text(24),
        DIST_10: text(24),
        DATA: text(50),
    }
}

/// `S_DIST_xx`, the text for order lines of `district`, from 0.
#[inline]
pub const fn stock_dist(district: u64) -> crate::workload::columns::Text {
    crate::workload::columns::Text::at(stock::DIST_01.word() + 3 * district as usize, 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ten_district_texts_lie_one_after_the_other() {
        assert_eq!(stock_dist(0), stock::DIST_01);
        assert_eq!(stock_dist(6), stock::DIST_07);
        assert_eq!(stock_dist(9), stock::DIST_10);
        assert_eq!(stock_dist(9).end(), stock::DATA.word());
    }

    #[test]
    fn payloads_hold_what_the_specification_asks_for() {
        let bytes = [
            warehouse::WORDS,
            district::WORDS,
            customer::WORDS,
            history::WORDS,
            order::WORDS,
            order_line::WORDS,
            item::WORDS,
            stock::WORDS,
        ]
        .map(|words| 8 * words);
        // Clause 4.2.2's table of row lengths, which count shorter numbers: 89, 95, 655, 46, 24, 54, 82 and 306.
        assert_eq!(bytes, [128, 136, 720, 72, 40, 64, 96, 328]);
    }
}
