//! TPC-C's transactions on plain records (clauses 2.4 to 2.8).

use super::{Answers, Records};
use engine::protocol::Protocol;
use engine::session::{Halt, Session};
use engine::workload::RecordId;
use engine::workload::ahead::ReadWriteSet;
use engine::workload::tpcc::columns::{
    customer, customer_name, customer_order, district, history, item, new_order, order, order_line, stock,
    stock_dist, warehouse,
};
use engine::workload::tpcc::{
    Answer, DISTRICTS, Input, Job, LastOrder, LineShown, NewOrder, Payment, Status, Tally, Tpcc, Who, key,
    table,
};
use phases::ops::PhaseOps;
use std::collections::BTreeSet;

impl Answers for Tpcc {
    type Answer = Answer;

    async fn answer<P: Protocol, O: PhaseOps>(
        &self,
        session: &mut Session<P, O>,
        input: &Input,
    ) -> Result<(Tally, Option<Answer>), Halt> {
        // Deliveries write their warehouse as it is, and new-orders read it: so versions tell how they follow each other. The order
        // in which orders were taken away does not, where a scan and a removal overlap in time: the history leaves such reads out.
        if matches!(input.job, Job::Delivery { .. }) {
            let of_warehouse = session.update(key::warehouse(input.warehouse)).await?;
            let as_it_is = session.word(of_warehouse, 0);
            session.set_word(of_warehouse, 0, as_it_is);
        }
        let (effects, answer) = Tpcc::answer(self, session, input).await?;
        Ok((effects.into(), answer))
    }

    fn declare_more(input: &Input, set: &mut ReadWriteSet) {
        if matches!(input.job, Job::Delivery { .. }) {
            set.write(key::warehouse(input.warehouse));
        }
    }

    fn plainly(records: &mut Records, input: &Input) -> Option<Answer> {
        let &Input { warehouse: w, district: d, date, .. } = input;
        match &input.job {
            Job::NewOrder(asked) => place(records, input, asked),
            Job::Payment(asked) => pay(records, input, asked),
            Job::Delivery { carrier } => (0..DISTRICTS).for_each(|d| deliver(records, w, d, *carrier, date)),
            Job::OrderStatus(who) => return Some(Answer::Status(status(records, w, d, *who))),
            Job::StockLevel { threshold } => return Some(Answer::Low(low(records, w, d, *threshold))),
        }
        None
    }
}

fn place(r: &mut Records, input: &Input, asked: &NewOrder) {
    let (w, d) = (input.warehouse, input.district);
    let lines = &asked.lines[..usize::from(asked.count)];
    let o = r.number(key::district(w, d), district::NEXT_O_ID);
    r.add(key::district(w, d), district::NEXT_O_ID, 1);
    let all_local = lines.iter().all(|line| u64::from(line.supplier) == w);
    let numbers = [
        (order::C_ID, asked.customer),
        (order::ENTRY_D, input.date),
        (order::OL_CNT, lines.len() as u64),
        (order::ALL_LOCAL, all_local.into()),
    ];
    r.insert(key::order(w, d, o), order::WORDS, &numbers);
    r.insert(key::new_order(w, d, o), new_order::WORDS, &[(new_order::O_ID, o)]);
    let entry = key::customer_order(w, d, asked.customer, o);
    r.insert(entry, customer_order::WORDS, &[(customer_order::O_ID, o)]);
    for (line, place) in lines.iter().zip(1..) {
        let (supplier, i, quantity) =
            (u64::from(line.supplier), u64::from(line.item), u64::from(line.quantity));
        let of_stock = key::stock(supplier, i);
        // Clause 2.4.2.2: ten more than are ordered must be there, else the stock is filled up.
        let filled = if r.number(of_stock, stock::QUANTITY) < quantity + 10 { 91 } else { 0 };
        r.add(of_stock, stock::QUANTITY, filled - quantity as i64);
        r.add(of_stock, stock::YTD, quantity as i64);
        r.add(of_stock, stock::ORDER_CNT, 1);
        r.add(of_stock, stock::REMOTE_CNT, i64::from(supplier != w));
        let price = r.number(key::item(input.node, i), item::PRICE);
        let info = stock_dist(d).get(r.row(of_stock));
        let numbers = [
            (order_line::I_ID, i),
            (order_line::SUPPLY_W_ID, supplier),
            (order_line::QUANTITY, quantity),
            (order_line::AMOUNT, quantity * price),
        ];
        let row = r.insert(key::order_line(w, d, o, place), order_line::WORDS, &numbers);
        order_line::DIST_INFO.put(row, &info);
    }
}

fn who(r: &mut Records, w: u64, d: u64, who: Who) -> u64 {
    match who {
        Who::Id(c) => c,
        Who::Name(last) => {
            let namesakes: Vec<u64> = r.keys(table::CUSTOMER_NAME, key::of_name(w, d, last)).collect();
            // The one at n/2 rounded up, counted from 1.
            let key = namesakes[namesakes.len().div_ceil(2) - 1];
            let id = RecordId { table: table::CUSTOMER_NAME, key };
            r.number(id, customer_name::C_ID)
        }
    }
}

fn pay(r: &mut Records, input: &Input, asked: &Payment) {
    let (w, d, amount) = (input.warehouse, input.district, asked.amount as i64);
    let (c_w, c_d) = (asked.customer_warehouse, asked.customer_district);
    r.add(key::warehouse(w), warehouse::YTD, amount);
    r.add(key::district(w, d), district::YTD, amount);
    let c = who(r, c_w, c_d, asked.who);
    let payer = key::customer(c_w, c_d, c);
    r.add(payer, customer::BALANCE, -amount);
    r.add(payer, customer::YTD_PAYMENT, amount);
    r.add(payer, customer::PAYMENT_CNT, 1);
    let row = r.row(payer);
    if customer::CREDIT.get(row) == b"BC" {
        let mut data = format!("|{c} {} {} {} {} {amount}", c_d + 1, c_w + 1, d + 1, w + 1).into_bytes();
        data.resize(48, b' ');
        data.extend(customer::DATA.get(row));
        customer::DATA.put(row, &data);
    }
    let mut data = warehouse::NAME.get(r.row(key::warehouse(w)));
    data.extend(b"    ");
    data.extend(district::NAME.get(r.row(key::district(w, d))));
    let numbers = [
        (history::C_ID, c),
        (history::C_D_ID, c_d),
        (history::C_W_ID, c_w),
        (history::D_ID, d),
        (history::DATE, input.date),
        (history::AMOUNT, asked.amount),
    ];
    let row = r.insert(key::payment(w, asked.client, asked.serial), history::WORDS, &numbers);
    history::DATA.put(row, &data);
}

fn deliver(r: &mut Records, w: u64, d: u64, carrier: u64, date: u64) {
    let Some(oldest) = r.keys(table::NEW_ORDER, key::new_orders(w, d)).next() else { return };
    let entry = RecordId { table: table::NEW_ORDER, key: oldest };
    let o = r.number(entry, new_order::O_ID);
    r.remove(entry);
    r.row(key::order(w, d, o))[order::CARRIER_ID.word()] = carrier;
    let lines: Vec<u64> = r.keys(table::ORDER_LINE, key::lines_of(w, d, o, o)).collect();
    let mut sum = 0;
    for key in lines {
        let line = r.row(RecordId { table: table::ORDER_LINE, key });
        line[order_line::DELIVERY_D.word()] = date;
        sum += line[order_line::AMOUNT.word()];
    }
    let c = r.number(key::order(w, d, o), order::C_ID);
    r.add(key::customer(w, d, c), customer::BALANCE, sum as i64);
    r.add(key::customer(w, d, c), customer::DELIVERY_CNT, 1);
}

fn status(r: &mut Records, w: u64, d: u64, asked: Who) -> Status {
    let c = who(r, w, d, asked);
    let of = key::customer(w, d, c);
    let newest = r.keys(table::CUSTOMER_ORDER, key::orders_of(w, d, c)).next_back();
    let last = newest.map(|key| {
        let entry = RecordId { table: table::CUSTOMER_ORDER, key };
        let o = r.number(entry, customer_order::O_ID);
        let keys: Vec<u64> = r.keys(table::ORDER_LINE, key::lines_of(w, d, o, o)).collect();
        let mut lines = [LineShown::default(); 15];
        for (line, key) in lines.iter_mut().zip(keys) {
            let row = r.row(RecordId { table: table::ORDER_LINE, key });
            *line = LineShown {
                item: row[order_line::I_ID.word()],
                supplier: row[order_line::SUPPLY_W_ID.word()],
                quantity: row[order_line::QUANTITY.word()],
                amount: row[order_line::AMOUNT.word()],
                delivered: row[order_line::DELIVERY_D.word()],
            };
        }
        LastOrder {
            number: o,
            entered: r.number(key::order(w, d, o), order::ENTRY_D),
            carrier: r.number(key::order(w, d, o), order::CARRIER_ID),
            lines,
        }
    });
    Status {
        customer: c,
        balance: r.number(of, customer::BALANCE) as i64,
        first: r.text(of, customer::FIRST),
        last,
    }
}

fn low(r: &mut Records, w: u64, d: u64, threshold: u64) -> u64 {
    let next = r.number(key::district(w, d), district::NEXT_O_ID);
    let mut items = BTreeSet::new();
    for o in next.saturating_sub(20)..next {
        let lines: Vec<u64> = r.keys(table::ORDER_LINE, key::lines_of(w, d, o, o)).collect();
        for key in lines {
            let line = RecordId { table: table::ORDER_LINE, key };
            items.insert(r.number(line, order_line::I_ID));
        }
    }
    items.iter().filter(|&&i| r.number(key::stock(w, i), stock::QUANTITY) < threshold).count() as u64
}
