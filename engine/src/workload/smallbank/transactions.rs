//! The six transactions, over a session. Balances are signed cents in a record's first word.

use super::{CHECKING, Input, Kind, Money, SAVINGS};
use crate::protocol::Protocol;
use crate::session::{Halt, Row, Session};
use crate::workload::RecordId;
use crate::workload::ahead::ReadWriteSet;
use phases::ops::PhaseOps;

/// What a check costs beyond its amount if it bounces: one dollar, as in the paper.
const PENALTY: i64 = 100;

const INSUFFICIENT_FUNDS: Halt = Halt::User("insufficient-funds");

const fn savings(customer: u64) -> RecordId {
    RecordId { table: SAVINGS, key: customer }
}

const fn checking(customer: u64) -> RecordId {
    RecordId { table: CHECKING, key: customer }
}

fn balance_of<P: Protocol, O: PhaseOps>(session: &Session<P, O>, row: Row) -> i64 {
    session.word(row, 0) as i64
}

fn set<P: Protocol, O: PhaseOps>(session: &mut Session<P, O>, row: Row, cents: i64) {
    session.set_word(row, 0, cents as u64);
}

fn paid_in(cents: i64) -> Money {
    Money { paid_in: i128::from(cents), ..Money::default() }
}

fn paid_out(cents: i64) -> Money {
    Money { paid_out: i128::from(cents), ..Money::default() }
}

/// What each transaction touches: all of it follows from the input.
pub(super) fn declare(input: &Input, set: &mut ReadWriteSet) {
    let Input { kind, customer, other, .. } = *input;
    match kind {
        Kind::Amalgamate => {
            set.write(savings(customer));
            set.write(checking(customer));
            set.write(checking(other));
        }
        Kind::Balance => {
            set.read(savings(customer));
            set.read(checking(customer));
        }
        Kind::DepositChecking => set.write(checking(customer)),
        Kind::SendPayment => {
            set.write(checking(customer));
            set.write(checking(other));
        }
        Kind::TransactSavings => set.write(savings(customer)),
        Kind::WriteCheck => {
            set.read(savings(customer));
            set.write(checking(customer));
        }
    }
}

/// All of the first customer's money goes to the second one's checking account.
pub(super) async fn amalgamate<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    input: &Input,
) -> Result<Money, Halt> {
    let keys = [savings(input.customer), checking(input.customer), checking(input.other)];
    let [from_savings, from_checking, to] = session.update_all(keys).await?;
    let all = balance_of(session, from_savings) + balance_of(session, from_checking);
    let rest = balance_of(session, to);
    set(session, from_savings, 0);
    set(session, from_checking, 0);
    set(session, to, rest + all);
    Ok(Money::default())
}

/// Reads both balances.
pub(super) async fn balance<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    input: &Input,
) -> Result<Money, Halt> {
    let [s, c] = session.read_all([savings(input.customer), checking(input.customer)]).await?;
    std::hint::black_box(balance_of(session, s) + balance_of(session, c));
    Ok(Money::default())
}

/// Puts money into a checking account.
pub(super) async fn deposit_checking<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    input: &Input,
) -> Result<Money, Halt> {
    let account = session.update(checking(input.customer)).await?;
    let balance = balance_of(session, account);
    set(session, account, balance + input.amount);
    Ok(paid_in(input.amount))
}

/// Moves money between checking accounts, if there is enough.
pub(super) async fn send_payment<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    input: &Input,
) -> Result<Money, Halt> {
    let [from, to] = session.update_all([checking(input.customer), checking(input.other)]).await?;
    let (payer, payee) = (balance_of(session, from), balance_of(session, to));
    if payer < input.amount {
        return Err(INSUFFICIENT_FUNDS);
    }
    set(session, from, payer - input.amount);
    set(session, to, payee + input.amount);
    Ok(Money::default())
}

/// Puts money into savings or takes it out, if there is enough.
pub(super) async fn transact_savings<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    input: &Input,
) -> Result<Money, Halt> {
    let account = session.update(savings(input.customer)).await?;
    let balance = balance_of(session, account) + input.amount;
    if balance < 0 {
        return Err(INSUFFICIENT_FUNDS);
    }
    set(session, account, balance);
    Ok(if input.amount < 0 { paid_out(-input.amount) } else { paid_in(input.amount) })
}

/// Pays a check from the checking account; a penalty is due if both accounts together do not cover it.
pub(super) async fn write_check<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    input: &Input,
) -> Result<Money, Halt> {
    let [s, c] = session.read_and_update(savings(input.customer), checking(input.customer)).await?;
    let (in_savings, in_checking) = (balance_of(session, s), balance_of(session, c));
    let due = if in_savings + in_checking < input.amount { input.amount + PENALTY } else { input.amount };
    set(session, c, in_checking - due);
    Ok(paid_out(due))
}
