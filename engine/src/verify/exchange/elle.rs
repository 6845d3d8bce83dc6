//! Elle's EDN operations, over lists or registers.
//!
//! A history is a sequence of maps, bare or in one vector (elle-cli takes both). A transaction is two of them: `:type
//! :invoke`, then `:ok`, `:fail` or `:info` (in doubt), with the same `:process`, which runs one transaction at a time;
//! `:value` holds its operations, `[:r k v]`, `[:w k v]` or `[:append k v]`. Elle orders real time by *position*, so
//! what begins and ends at one nanosecond is written beginning first: it overlaps.
//!
//! Two things make the version order Elle's to see. Lists end with a transaction, marked `:final-read true`, that reads
//! them all. Registers give each operation that took effect an `:order`, its place in one order of all writers;
//! `(into {} (map (juxt :index :order)) ops)` over these is what `elle.rw-register` takes as `:transaction-order`. It
//! is missing where writes form a cycle.
//!
//! The transaction that only stands for the initial version is marked `:load true`: another's first write is no such thing.

use super::super::format::{FormatError, Problem};
use super::super::graph::{Graph, Mask};
use super::super::history::{History, Key, Op, OpKind, Outcome};
use super::super::index::Fate;
use super::edn::{Fault, Node, Reader, Value};
use super::lists::{ListRead, resolve};
use super::plain::{Draft, DraftOp, DraftTxn, Plain, number};
use super::{ExportError, Format};
use primitives::units::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// List elements one export may hold: some ten gigabytes.
const MAX_ELEMENTS: u64 = 1 << 30;

/// When an event is written: by time, then beginnings before ends, then as a session's transactions follow each other.
type When = (u64, u32, u8);

/// Writes the history; `append` as lists, else as registers.
pub(super) fn write(plain: &Plain, append: bool, out: &mut impl Write) -> Result<(), ExportError> {
    let format = if append { Format::ElleAppend } else { Format::ElleRegister };
    let unfit = |why| ExportError::Unfit { format, why };
    let events = events(plain).map_err(unfit)?;
    let lists = if append { Lists::of(plain) } else { Lists::default() };
    let elements = if append { lists.elements(plain) } else { 0 };
    if elements > MAX_ELEMENTS {
        return Err(unfit(format!("its lists would have {elements} elements; write elle-register instead")));
    }
    let order = if append { None } else { order(plain) };
    let mut file = Events { out, index: 0 };
    write!(file.out, "[")?;
    let loads: Vec<(u64, u64)> = plain.loads().collect();
    let start = plain.history.txns().iter().map(|t| t.invoke.0).min().unwrap_or(0);
    let word = if append { ":append" } else { ":w" };
    if !loads.is_empty() {
        for kind in [":invoke", ":ok"] {
            file.begin(start, kind, plain.free_session)?;
            for (n, (record, version)) in loads.iter().enumerate() {
                write!(file.out, "{}[{word} {record} {version}]", if n == 0 { "" } else { " " })?;
            }
            write!(file.out, "] :load true")?;
            if order.is_some() && kind == ":ok" {
                write!(file.out, " :order 0")?;
            }
            write!(file.out, "}}")?;
        }
    }
    let mut last = start;
    for (when, position, begins) in events {
        let txn = &plain.history.txns()[position];
        last = last.max(when.0);
        let (time, kind) = match (begins, txn.outcome) {
            (true, _) => (txn.invoke.0, ":invoke"),
            (false, Outcome::Committed) => (txn.ret.0, ":ok"),
            (false, Outcome::Aborted(_)) => (when.0, ":fail"),
            (false, Outcome::Unknown) => (last, ":info"),
        };
        file.begin(time, kind, u64::from(txn.session))?;
        for (n, op) in plain.history.ops(txn).iter().enumerate() {
            let gap = if n == 0 { "" } else { " " };
            let record = number(op.record());
            match op.kind {
                OpKind::Write => write!(file.out, "{gap}[{word} {record} {}]", op.version)?,
                OpKind::Read if begins => write!(file.out, "{gap}[:r {record} nil]")?,
                OpKind::Read if append => {
                    write!(file.out, "{gap}[:r {record} ")?;
                    lists.write(op, file.out)?;
                    write!(file.out, "]")?;
                }
                OpKind::Read => write!(file.out, "{gap}[:r {record} {}]", op.version)?,
            }
        }
        write!(file.out, "]")?;
        if let Outcome::Aborted(reason) = txn.outcome
            && !begins
        {
            write!(file.out, " :error [{}]", quoted(plain.history.reason(reason)))?;
        }
        if let Some(order) = &order
            && !begins
            && plain.active(position)
        {
            write!(file.out, " :order {}", order[position] + 1)?;
        }
        write!(file.out, "}}")?;
    }
    if append {
        for kind in [":invoke", ":ok"] {
            file.begin(last, kind, plain.free_session + 1)?;
            let known = plain.records.iter().filter_map(|&key| Some(Op::read(key, lists.last(key)?)));
            for (n, op) in known.enumerate() {
                write!(file.out, "{}[:r {} ", if n == 0 { "" } else { " " }, number(op.record()))?;
                if kind == ":ok" {
                    lists.write(&op, file.out)?
                } else {
                    write!(file.out, "nil")?
                }
                write!(file.out, "]")?;
            }
            write!(file.out, "] :final-read true}}")?;
        }
    }
    writeln!(file.out, "\n]")?;
    Ok(file.out.flush()?)
}

struct Events<'o, W> {
    out: &'o mut W,
    index: u64,
}

impl<W: Write> Events<'_, W> {
    /// An operation, up to the content of its value.
    fn begin(&mut self, time: u64, kind: &str, process: u64) -> io::Result<()> {
        let index = self.index;
        self.index += 1;
        write!(self.out, "\n{{:index {index} :time {time} :type {kind} :process {process} :f :txn :value [")
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// Beginnings and ends in the order they are written.
///
/// Who tries again at once begins at the time of the event that its simulated core handles, and the attempt before ended at the core's
/// clock, which is ahead of that. What was undone took no effect, and nobody's order depends on its end: it has ended when its session
/// goes on.
fn events(plain: &Plain) -> Result<Vec<(When, usize, bool)>, String> {
    let txns = plain.history.txns();
    let mut by_session: Vec<usize> = (0..txns.len()).collect();
    by_session.sort_by_key(|&n| (txns[n].session, txns[n].invoke));
    let mut events = Vec::with_capacity(txns.len() * 2);
    for session in by_session.chunk_by(|&a, &b| txns[a].session == txns[b].session) {
        // When the session is free again, and who keeps it until the next one begins.
        let mut free: When = (0, 0, 0);
        let mut open: Option<usize> = None;
        for (place, &n) in session.iter().enumerate() {
            let txn = &txns[n];
            if txn.invoke.0 < free.0 {
                let id = txn.id;
                return Err(format!(
                    "session {} begins transaction {id} before its last one ended",
                    txn.session
                ));
            }
            let phase = if txn.invoke.0 == free.0 { free.1 } else { 0 };
            let begins: When = (txn.invoke.0, phase, 2);
            if let Some(doubtful) = open.take() {
                events.push(((begins.0, begins.1, 1), doubtful, false));
            }
            events.push((begins, n, true));
            free = begins;
            if txn.ret == Nanos::MAX {
                open = Some(n);
            } else {
                let mut end = txn.ret.0.max(txn.invoke.0);
                if let (Outcome::Aborted(_), Some(&next)) = (txn.outcome, session.get(place + 1)) {
                    end = end.min(txns[next].invoke.0);
                }
                let ends: When = (end, if end == begins.0 { phase + 1 } else { 1 }, 0);
                events.push((ends, n, false));
                free = ends;
            }
        }
        if let Some(doubtful) = open {
            events.push(((u64::MAX, 0, 0), doubtful, false));
        }
    }
    events.sort_by_key(|&(when, n, _)| (when, n));
    let last = events.iter().map(|e| e.0.0).filter(|&t| t != u64::MAX).max().unwrap_or(0);
    for event in events.iter_mut().filter(|e| e.0.0 == u64::MAX) {
        event.0.0 = last;
    }
    Ok(events)
}

/// A place for each transaction in an order that all writes of all records follow, if there is one.
fn order(plain: &Plain) -> Option<Vec<u64>> {
    let graph = Graph::build(&plain.index);
    let count = graph.nodes();
    let mut before = vec![0u32; count];
    let writes = |node: u32| graph.edges(node).iter().filter(|(_, label)| Mask::WW.has(*label)).map(|e| e.0);
    for node in 0..count as u32 {
        writes(node).for_each(|next| before[next as usize] += 1);
    }
    let mut ready: Vec<u32> = (0..count as u32).filter(|&n| before[n as usize] == 0).collect();
    let mut place = vec![0; count];
    let mut at = 0;
    while at < ready.len() {
        let node = ready[at];
        place[node as usize] = at as u64;
        at += 1;
        for next in writes(node) {
            before[next as usize] -= 1;
            if before[next as usize] == 0 {
                ready.push(next);
            }
        }
    }
    (at == count).then_some(place)
}

/// The versions of each record that took effect, in order.
#[derive(Default)]
struct Lists {
    versions: BTreeMap<u64, Vec<u64>>,
}

impl Lists {
    fn of(plain: &Plain) -> Lists {
        let mut versions: BTreeMap<u64, Vec<u64>> =
            plain.loads().map(|(record, version)| (record, vec![version])).collect();
        let index = &plain.index;
        for item in index.items.iter().filter(|i| !i.is_read() && index.active(i.txn())) {
            let op = Op::write(item.record(), item.version);
            let list = versions.entry(number(op.record())).or_default();
            if list.last() != Some(&item.version) {
                list.push(item.version);
            }
        }
        // A write at or below the initial version is an anomaly, and still has its place.
        versions.values_mut().for_each(|list| list.sort_unstable());
        Lists { versions }
    }

    fn below(&self, op: &Op) -> &[u64] {
        let list = self.versions.get(&number(op.record())).map_or(&[][..], Vec::as_slice);
        &list[..list.partition_point(|&v| v < op.version)]
    }

    fn last(&self, key: Key) -> Option<u64> {
        self.versions.get(&number(key)).and_then(|list| list.last()).copied()
    }

    /// Elements of all lists that will be written.
    fn elements(&self, plain: &Plain) -> u64 {
        let reads = plain.history.txns().iter().flat_map(|t| plain.history.ops(t));
        let reads = reads.filter(|op| op.kind == OpKind::Read);
        let most = reads.map(|op| self.below(op).len() as u64 + 1).sum::<u64>();
        most + self.versions.values().map(|list| list.len() as u64).sum::<u64>()
    }

    fn write(&self, op: &Op, out: &mut impl Write) -> io::Result<()> {
        write!(out, "[")?;
        for version in self.below(op) {
            write!(out, "{version} ")?;
        }
        write!(out, "{}]", op.version)
    }
}

/// Reads operations over lists or registers, and whether they told times.
pub(super) fn read(bytes: &[u8], append: bool) -> Result<(History, bool), FormatError> {
    let mut import = Import { append, timed: true, ..Import::default() };
    let mut reader = Reader::new(bytes);
    let place = |at, problem| super::error(bytes, at, problem);
    let enclosed = matches!(reader.peek(), Some(b'[' | b'('));
    let close = if reader.peek() == Some(b'(') { b')' } else { b']' };
    if enclosed {
        reader.step();
    }
    loop {
        match reader.peek() {
            Some(b) if enclosed && b == close => {
                reader.step();
                if reader.peek().is_some() {
                    return Err(place(reader.at, Problem::Invalid("more behind the history".into())));
                }
                break;
            }
            None if !enclosed => break,
            _ => {}
        }
        let done = import.draft.txns.len() - import.open.len();
        match reader.form() {
            Ok(node) => import.operation(node).map_err(|(at, problem)| place(at, problem))?,
            Err(Fault::End) => {
                return Err(place(bytes.len(), Problem::Truncated { transactions: done }));
            }
            Err(Fault::Bad(at, what)) => return Err(place(at, Problem::Invalid(what))),
        }
    }
    import.finish().map_err(|(at, problem)| place(at.min(bytes.len()), problem))
}

/// A micro-operation as it stands in the file.
struct Micro {
    op: DraftOp,
    /// A list that was read.
    list: Option<Vec<u64>>,
}

#[derive(Default)]
struct Import {
    append: bool,
    timed: bool,
    draft: Draft,
    /// By process: the transaction begun and what its invocation said.
    open: BTreeMap<u64, (usize, Vec<Micro>)>,
    indices: BTreeSet<i64>,
    /// Keys that are no numbers.
    names: BTreeMap<String, u64>,
    numbers: bool,
    reads: Vec<ListRead>,
    arena: Vec<u64>,
    final_read: Option<usize>,
    load: Option<usize>,
    events: u64,
}

type Trouble = (usize, Problem);

fn invalid<T>(at: usize, what: impl Into<String>) -> Result<T, Trouble> {
    Err((at, Problem::Invalid(what.into())))
}

impl Import {
    fn operation(&mut self, node: Node<'_>) -> Result<(), Trouble> {
        let start = node.at;
        let Value::Map(fields) = node.value else {
            return invalid(start, format!("{} where an operation, a map, is due", node.value.name()));
        };
        let (mut kind, mut process, mut value, mut time) = (None, None, None, None);
        let (mut reason, mut last, mut load) = (String::new(), false, false);
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for (name, field) in fields {
            let Value::Keyword(name) = name.value else { continue };
            if !seen.insert(name) {
                return invalid(field.at, format!(":{name} stands twice in one operation"));
            }
            match (name, field.value) {
                ("type", Value::Keyword(found)) => kind = Some((field.at, found)),
                ("process", Value::Int(n)) if n >= 0 => process = Some(n as u64),
                // Faults and other doings that are no transactions.
                ("process", Value::Keyword(_)) => return Ok(()),
                ("time", Value::Int(n)) if n >= 0 => time = Some(n as u64),
                // Jepsen's word for no time.
                ("time", Value::Int(-1) | Value::Nil) => {}
                ("index", Value::Int(n)) if self.indices.insert(n) => {}
                ("index", Value::Int(n)) => {
                    return Err((field.at, Problem::DuplicateId { id: n.max(0) as u64 }));
                }
                ("value", value_here) => value = Some((field.at, value_here)),
                ("error", Value::Seq(said)) => {
                    reason = said.iter().map(|n| text(&n.value)).collect::<Vec<_>>().join(" ");
                }
                ("error", said) => reason = text(&said),
                ("final-read", _) => last = true,
                ("load", Value::Other("true")) => load = true,
                ("type" | "process" | "time" | "index", other) => {
                    return invalid(field.at, format!(":{name} is {}", other.name()));
                }
                _ => {}
            }
        }
        let Some((kind_at, kind)) = kind else { return invalid(start, "an operation without :type") };
        let Some(process) = process else { return invalid(start, "an operation without :process") };
        let micros = match value {
            Some((_, Value::Seq(forms))) => self.micros(forms, kind != "invoke")?,
            Some((_, Value::Nil)) | None if kind != "ok" => Vec::new(),
            Some((at, other)) => {
                return invalid(at, format!(":value is {}, no sequence of reads and writes", other.name()));
            }
            None => return invalid(start, "an operation without :value"),
        };
        // Without times, positions are the time, as they are for Elle.
        let now = time.unwrap_or(self.events);
        self.events += 1;
        let outcome = match kind {
            "invoke" => {
                if self.open.contains_key(&process) {
                    return invalid(start, format!("process {process} begins again before it ended"));
                }
                self.open.insert(process, (self.draft.txns.len(), micros));
                self.begin(process, now);
                return Ok(());
            }
            "ok" => Fate::Committed,
            "fail" => Fate::Aborted,
            "info" => Fate::InDoubt,
            other => return invalid(kind_at, format!(":type is :{other}, not :invoke, :ok, :fail or :info")),
        };
        let (txn, micros) = match self.open.remove(&process) {
            Some((txn, begun)) => (txn, if micros.is_empty() { begun } else { micros }),
            None => {
                self.timed = false;
                (self.begin(process, now), micros)
            }
        };
        if last {
            self.final_read = Some(txn);
        }
        if load {
            self.load = Some(txn);
        }
        if reason.is_empty() {
            reason.push_str("fail");
        }
        self.end(txn, outcome, reason, now, micros);
        Ok(())
    }

    fn begin(&mut self, session: u64, invoke: u64) -> usize {
        let id = self.draft.txns.len() as u64;
        let (outcome, reason) = (Fate::InDoubt, String::new());
        self.draft.txns.push(DraftTxn { id, session, invoke, ret: None, outcome, reason, ops: 0..0 });
        id as usize
    }

    fn end(&mut self, txn: usize, outcome: Fate, reason: String, now: u64, micros: Vec<Micro>) {
        let first = self.draft.ops.len();
        for micro in micros {
            if let Some(list) = micro.list {
                let start = self.arena.len();
                self.arena.extend(list);
                self.reads.push(ListRead { txn, op: self.draft.ops.len(), list: start..self.arena.len() });
            }
            self.draft.ops.push(micro.op);
        }
        let slot = &mut self.draft.txns[txn];
        // An empty range points nowhere: operations behind it may go with the final read.
        slot.ops = if self.draft.ops.len() == first { 0..0 } else { first..self.draft.ops.len() };
        slot.ret = (outcome != Fate::InDoubt).then_some(now);
        slot.outcome = outcome;
        slot.reason = reason;
    }

    /// The reads and writes of a value. Before a transaction has returned (`known` is false) its reads saw nothing.
    fn micros(&mut self, forms: Vec<Node<'_>>, known: bool) -> Result<Vec<Micro>, Trouble> {
        let mut micros = Vec::with_capacity(forms.len());
        for form in forms {
            let at = form.at;
            let Value::Seq(parts) = form.value else {
                return invalid(at, format!("{} where [:r key value] or a write is due", form.value.name()));
            };
            let Ok([word, key, value]) = <[Node<'_>; 3]>::try_from(parts) else {
                return invalid(at, "an operation of other than three parts");
            };
            let record = self.record(key)?;
            let write = if self.append { "append" } else { "w" };
            let word_at = word.at;
            match word.value {
                Value::Keyword("r") if !known => {}
                Value::Keyword("r") => micros.push(self.read(record, value)?),
                Value::Keyword(found) if found == write => {
                    let Value::Int(n @ 0..) = value.value else {
                        let found = value.value.name();
                        return invalid(value.at, format!("{found} is written; values are numbers from 0"));
                    };
                    let op = DraftOp { kind: OpKind::Write, record, version: Some(n as u64) };
                    micros.push(Micro { op, list: None });
                }
                other => {
                    return invalid(word_at, format!("{} where :r or :{write} is due", other.name()));
                }
            }
        }
        Ok(micros)
    }

    fn read(&self, record: u64, value: Node<'_>) -> Result<Micro, Trouble> {
        let op = |version| DraftOp { kind: OpKind::Read, record, version };
        let (list, version) = match value.value {
            Value::Nil if self.append => (Some(Vec::new()), None),
            Value::Nil => (None, None),
            Value::Int(n @ 0..) if !self.append => (None, Some(n as u64)),
            Value::Seq(elements) if self.append => {
                let mut list = Vec::with_capacity(elements.len());
                for element in elements {
                    let Value::Int(n @ 0..) = element.value else {
                        let found = element.value.name();
                        return invalid(element.at, format!("{found} in a list; values are numbers from 0"));
                    };
                    list.push(n as u64);
                }
                (Some(list), None)
            }
            other => {
                let due = if self.append { "a list" } else { "a number from 0" };
                return invalid(value.at, format!("{} is read where {due} or nil is due", other.name()));
            }
        };
        Ok(Micro { op: op(version), list })
    }

    /// Keys are numbers, or all are names, which are numbered as they come.
    fn record(&mut self, key: Node<'_>) -> Result<u64, Trouble> {
        let name = match key.value {
            Value::Int(n @ 0..) if self.names.is_empty() => {
                self.numbers = true;
                return Ok(n as u64);
            }
            Value::Keyword(name) if !self.numbers => name.to_owned(),
            Value::Text(name) if !self.numbers => name,
            other => {
                let what = format!("key {}: keys are numbers from 0, or all are names", other.name());
                return invalid(key.at, what);
            }
        };
        let fresh = self.names.len() as u64;
        Ok(*self.names.entry(name).or_insert(fresh))
    }

    /// Whether the last transaction read the last version of whatever it read: then it showed the order of the
    /// versions and says nothing else, for nobody follows it.
    fn last_saw_all(&self) -> bool {
        let Some((last, others)) = self.draft.txns.split_last() else { return false };
        let ops = &self.draft.ops[last.ops.clone()];
        let saw: BTreeMap<u64, Option<u64>> = ops.iter().map(|op| (op.record, op.version)).collect();
        let committed = others.iter().filter(|txn| txn.outcome == Fate::Committed);
        let mut counting = committed.flat_map(|txn| &self.draft.ops[txn.ops.clone()]);
        last.outcome == Fate::Committed
            && ops.iter().all(|op| op.kind == OpKind::Read)
            && counting.all(|op| saw.get(&op.record).is_none_or(|&seen| seen >= op.version))
    }

    fn finish(mut self) -> Result<(History, bool), Trouble> {
        for (txn, micros) in std::mem::take(&mut self.open).into_values() {
            self.end(txn, Fate::InDoubt, String::new(), 0, micros);
        }
        let sound = !self.append || resolve(&mut self.draft, &self.reads, &self.arena);
        if sound && self.final_read.is_some_and(|n| n + 1 == self.draft.txns.len()) && self.last_saw_all() {
            let ops = self.draft.txns.pop().map_or(0..0, |txn| txn.ops);
            if ops.end == self.draft.ops.len() {
                self.draft.ops.truncate(ops.start);
            }
        }
        if !self.timed {
            for txn in &mut self.draft.txns {
                txn.invoke = 0;
                txn.ret = txn.ret.map(|_| 0);
            }
        }
        let loads = self.draft.txns.len();
        let timed = self.timed;
        let mut history = self.draft.finish(self.load == Some(0)).map_err(|problem| (usize::MAX, problem))?;
        if history.txns().len() < loads {
            history.renumber();
        }
        Ok((history, timed))
    }
}

/// What an error says.
fn text(value: &Value<'_>) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Keyword(name) => (*name).to_owned(),
        other => other.name(),
    }
}
