//! Customer-position and the market feed on plain records (clauses 3.3.6 and 3.3.9).

use super::{Answers, Records};
use engine::protocol::Protocol;
use engine::session::{Halt, Session};
use engine::workload::RecordId;
use engine::workload::tpce::columns::{
    customer, customer_account, holding_summary, last_trade, status_type, tax, trade, trade_history,
};
use engine::workload::tpce::{
    Answer, Changed, CustomerPosition, Feed, Input, Job, Position, Tally, Worth, key, table,
};
use phases::ops::PhaseOps;

impl Answers for CustomerPosition {
    type Answer = Answer;

    async fn answer<P: Protocol, O: PhaseOps>(
        &self,
        session: &mut Session<P, O>,
        input: &Input,
    ) -> Result<(Tally, Option<Answer>), Halt> {
        CustomerPosition::answer(self, session, input).await
    }

    fn plainly(records: &mut Records, input: &Input) -> Option<Answer> {
        match &input.job {
            Job::Position(asked) => return Some(position(records, input.node, asked)),
            Job::Feed(asked) => feed(records, asked),
        }
        None
    }
}

fn feed(r: &mut Records, asked: &Feed) {
    for ticker in &asked.tickers {
        let security = key::last_trade(ticker.security.into());
        r.add(security, last_trade::VOL, ticker.quantity.into());
        let row = r.row(security);
        row[last_trade::PRICE.word()] = ticker.price.into();
        row[last_trade::DTS.word()] = asked.date;
    }
}

fn position(r: &mut Records, node: u64, asked: &Position) -> Answer {
    let c = match asked.by_tax {
        true => r.number(key::tax(asked.node, asked.tax), tax::C_ID),
        false => asked.customer,
    };
    let accounts: Vec<u64> = r.keys(table::ACCOUNT, key::accounts_of(c)).collect();
    let mut holdings = 0;
    let mut worths: Vec<Worth> = Vec::new();
    for a in 0..accounts.len() as u64 {
        let balance = r.number(key::account(c, a), customer_account::BAL);
        let mut assets = 0;
        let held: Vec<u64> = r
            .keys(table::HOLDING, key::holding(c, a, 0).key..=key::holding(c, a, (1 << 28) - 1).key)
            .collect();
        for held in held {
            let quantity = r.number(RecordId { table: table::HOLDING, key: held }, holding_summary::QTY);
            // A holding's key ends in its security's.
            let security = held - key::holding(c, a, 0).key;
            assets += quantity * r.number(key::last_trade(security), last_trade::PRICE);
            holdings += 1;
        }
        worths.push(Worth { assets, account: a, balance });
    }
    worths.sort();
    let mut history = Vec::new();
    if asked.history && !worths.is_empty() {
        let a = worths[asked.account as usize % worths.len()].account;
        let trades: Vec<u64> = r.keys(table::TRADE, key::trades_of(c, a)).rev().take(10).collect();
        for n in trades {
            let of = RecordId { table: table::TRADE, key: n };
            let (security, quantity) = (r.number(of, trade::S_SYMB), r.number(of, trade::QTY));
            let changes: Vec<u64> = r.keys(table::TRADE_HISTORY, key::changes_of(n)).collect();
            for change in changes {
                let change = RecordId { table: table::TRADE_HISTORY, key: change };
                let status = key::status(node, r.number(change, trade_history::ST_ID));
                history.push(Changed {
                    trade: n,
                    security,
                    quantity,
                    date: r.number(change, trade_history::DTS),
                    status: r.text(status, status_type::NAME),
                });
            }
        }
    }
    let of = key::customer(c);
    let mut answer = Answer {
        customer: (r.text(of, customer::L_NAME), r.number(of, customer::TIER)),
        accounts: worths.len() as u64,
        holdings,
        worth: Default::default(),
        history: [None; 30],
    };
    worths.into_iter().zip(&mut answer.worth).for_each(|(worth, place)| *place = worth);
    history.into_iter().zip(&mut answer.history).for_each(|(change, place)| *place = Some(change));
    answer
}
