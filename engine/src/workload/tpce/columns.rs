//! The columns of the TPC-E tables that customer-position touches (clause 2.2), all of them, and of the indexes beside them.
//!
//! Identifiers that are in a record's key are not repeated in its payload, symbols of securities are their numbers.
//! Money is in cents; dates are nanoseconds.

use crate::workload::columns::columns;

columns! {
    /// A customer.
    customer {
        TAX_ID: text(20),
        ST_ID: text(4),
        L_NAME: text(25),
        F_NAME: text(20),
        M_NAME: text(1),
        GNDR: text(1),
        TIER: num,
        DOB: num,
        AD_ID: num,
        CTRY_1: text(3),
        AREA_1: text(3),
        LOCAL_1: text(10),
        EXT_1: text(5),
        CTRY_2: text(3),
        AREA_2: text(3),
        LOCAL_2: text(10),
        EXT_2: text(5),
        CTRY_3: text(3),
        AREA_3: text(3),
        LOCAL_3: text(10),
        EXT_3: text(5),
        EMAIL_1: text(50),
        EMAIL_2: text(50),
    }
}

columns! {
    /// A customer's number, by tax number.
    tax {
        C_ID: num,
    }
}

columns! {
    /// An account of a customer.
    customer_account {
        B_ID: num,
        NAME: text(50),
        TAX_ST: num,
        BAL: num,
    }
}

columns! {
    /// How many of a security an account holds.
    holding_summary {
        QTY: num,
    }
}

columns! {
    /// The last trade of a security: its price now, at the day's opening, and how many were traded.
    last_trade {
        DTS: num,
        PRICE: num,
        OPEN_PRICE: num,
        VOL: num,
    }
}

columns! {
    /// A trade of an account; trades of an account are numbered in the order of time.
    trade {
        DTS: num,
        ST_ID: text(4),
        TT_ID: text(3),
        IS_CASH: num,
        S_SYMB: num,
        QTY: num,
        BID_PRICE: num,
        EXEC_NAME: text(49),
        TRADE_PRICE: num,
        CHRG: num,
        COMM: num,
        TAX: num,
        LIFO: num,
    }
}

columns! {
    /// A change of a trade's status. The status is its number among the status types.
    trade_history {
        DTS: num,
        ST_ID: num,
    }
}

columns! {
    /// A status that trades can have.
    status_type {
        ID: text(4),
        NAME: text(10),
    }
}
