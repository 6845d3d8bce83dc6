//! Finding a customer (clauses 2.5.2.2 and 2.6.2.2).

use super::columns::customer_name;
use super::input::Who;
use super::{key, table};
use crate::protocol::Protocol;
use crate::session::{Halt, Order, Session};
use phases::ops::PhaseOps;
use phases::rule::Abort;

/// Most customers of one district and last name that are looked at. The most frequent of NURand's 1000 names comes in one
/// of 39 draws, about 51 times among 2000; a test holds loaded districts far below this.
pub(super) const NAMESAKES: usize = 128;

/// The number of the customer who is asked for; of several with a last name the middle one by first name, `n/2` rounded
/// up.
pub(super) async fn named<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    w: u64,
    d: u64,
    who: Who,
) -> Result<u64, Halt> {
    let last = match who {
        Who::Id(c) => return Ok(c),
        Who::Name(last) => last,
    };
    let rows =
        session.scan(table::CUSTOMER_NAME, key::of_name(w, d, last), NAMESAKES, Order::Ascending).await?;
    if rows.is_empty() {
        return Err(Abort::NotFound.into());
    }
    let middle = session.row(rows, middle(rows.len()));
    Ok(session.word(middle, customer_name::C_ID.word()))
}

/// The place, from 0, of the middle one of `n`: the specification's `n/2` rounded up counts from 1.
pub(super) const fn middle(n: usize) -> usize {
    n.div_ceil(2) - 1
}

#[cfg(test)]
mod tests {
    use super::middle;

    #[test]
    fn the_middle_is_half_rounded_up() {
        assert_eq!([1, 2, 3, 4, 5, 6].map(middle), [0, 0, 1, 1, 2, 2]);
    }
}
