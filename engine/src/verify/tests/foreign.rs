//! Other checkers' formats: what is written can be read back and gets the same verdicts; what is damaged is named.

use super::exchange::{ExportError, Format, Imported, as_written, read, write};
use super::format::{FormatError, Problem};
use super::oracle::rows;
use super::*;
use proptest::prelude::*;

const FOREIGN: [Format; 4] = [Format::ElleAppend, Format::ElleRegister, Format::Dbcop, Format::Plume];

fn text(history: &History, format: Format) -> String {
    let mut out = Vec::new();
    write(history, format, &mut out).expect("it fits");
    String::from_utf8(out).expect("all formats are ASCII here")
}

fn import(text: &str) -> Imported {
    read(text.as_bytes(), None).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Two sessions, one transaction each way of ending, an aborted write that claims a committed one's version.
fn sample() -> History {
    let mut history = History::new(Some(0));
    let reason = history.intern("lock").expect("the first");
    history.push(0, 0, (Nanos(10), Nanos(20)), Outcome::Committed, [r(7, 0), w(7, 1)]);
    history.push(1, 1, (Nanos(12), Nanos(30)), Outcome::Aborted(reason), [r(7, 0), w(7, 1)]);
    history.push(2, 0, (Nanos(20), Nanos::MAX), Outcome::Unknown, [w(8, 1)]);
    history.push(3, 1, (Nanos(31), Nanos(40)), Outcome::Committed, [r(7, 1), r(8, 1)]);
    history
}

#[test]
fn the_formats_look_as_their_readers_expect() {
    let register = "[\n\
        {:index 0 :time 10 :type :invoke :process 2 :f :txn :value [[:w 7 0] [:w 8 0]] :load true}\n\
        {:index 1 :time 10 :type :ok :process 2 :f :txn :value [[:w 7 0] [:w 8 0]] :load true :order 0}\n\
        {:index 2 :time 10 :type :invoke :process 0 :f :txn :value [[:r 7 nil] [:w 7 1]]}\n\
        {:index 3 :time 12 :type :invoke :process 1 :f :txn :value [[:r 7 nil] [:w 7 2]]}\n\
        {:index 4 :time 20 :type :ok :process 0 :f :txn :value [[:r 7 0] [:w 7 1]] :order 1}\n\
        {:index 5 :time 20 :type :invoke :process 0 :f :txn :value [[:w 8 1]]}\n\
        {:index 6 :time 30 :type :fail :process 1 :f :txn :value [[:r 7 0] [:w 7 2]] :error [\"lock\"]}\n\
        {:index 7 :time 31 :type :invoke :process 1 :f :txn :value [[:r 7 nil] [:r 8 nil]]}\n\
        {:index 8 :time 40 :type :ok :process 1 :f :txn :value [[:r 7 1] [:r 8 1]] :order 4}\n\
        {:index 9 :time 40 :type :info :process 0 :f :txn :value [[:w 8 1]] :order 3}\n]\n";
    assert_eq!(text(&sample(), Format::ElleRegister), register);
    let append = text(&sample(), Format::ElleAppend);
    assert!(append.contains(":value [[:r 7 [0 1]] [:r 8 [0 1]]]}\n"), "{append}");
    assert!(
        append.contains(":process 3 :f :txn :value [[:r 7 [0 1]] [:r 8 [0 1]]] :final-read true}"),
        "{append}"
    );
    let plume = "w(7,0,2,4)\nw(8,0,2,4)\nr(7,0,0,0)\nw(7,1,0,0)\nr(7,0,1,-1)\nw(7,2,1,-1)\nw(8,1,0,2)\n\
        r(7,1,1,3)\nr(8,1,1,3)\n";
    assert_eq!(text(&sample(), Format::Plume), plume);
    let dbcop: serde_json::Value = serde_json::from_str(&text(&sample(), Format::Dbcop)).expect("JSON");
    let data = serde_json::json!([
        [{"events": [{"Write": {"variable": 7, "version": 0}}, {"Write": {"variable": 8, "version": 0}}],
          "committed": true}],
        [{"events": [{"Read": {"variable": 7, "version": 0}}, {"Write": {"variable": 7, "version": 1}}],
          "committed": true},
         {"events": [{"Write": {"variable": 8, "version": 1}}], "committed": true}],
        [{"events": [{"Read": {"variable": 7, "version": 1}}, {"Read": {"variable": 8, "version": 1}}],
          "committed": true}],
    ]);
    assert_eq!(dbcop["data"], data);
    for format in Format::ALL {
        let back = import(&text(&sample(), format));
        assert_eq!((back.format, back.history.initial_version()), (format, Some(0)));
        assert_eq!(back.timed, !matches!(format, Format::Dbcop | Format::Plume));
    }
}

#[test]
fn tables_become_part_of_the_key_and_come_back() {
    let mut history = History::new(Some(3));
    let far = Key { table: 9, key: (1 << 55) - 1 };
    history.push(
        0,
        0,
        (Nanos(0), Nanos(1)),
        Outcome::Committed,
        [Op::read(far, 3), Op::write(far, 4), w(0, 9)],
    );
    for format in FOREIGN {
        let back = import(&text(&history, format)).history;
        assert_eq!(back.initial_version(), Some(3));
        assert_eq!(back.ops(&back.txns()[0]), history.ops(&history.txns()[0]), "{format}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_reason() {
    let refused = |history: &History, format| match write(history, format, &mut Vec::new())
        .expect_err("it does not fit")
    {
        ExportError::Unfit { why, .. } => why,
        ExportError::Io(error) => panic!("{error}"),
    };
    let one = |op: Op| {
        let mut history = History::new(Some(0));
        history.push(0, 0, (Nanos(0), Nanos(1)), Outcome::Committed, [op]);
        history
    };
    assert!(refused(&one(Op::write(Key { table: 256, key: 0 }, 1)), Format::Plume).contains("below 256"));
    assert!(refused(&one(w(1 << 55, 1)), Format::Dbcop).contains("below 2^55"));
    assert!(refused(&one(w(1, 1 << 63)), Format::ElleRegister).contains("signed 64-bit"));
    let mut twice = one(w(1, 1));
    twice.push(1, 0, (Nanos(0), Nanos(1)), Outcome::Committed, []);
    assert!(refused(&twice, Format::ElleAppend).contains("session 0 begins transaction 1 before"));
    let mut doubt = History::new(Some(0));
    for n in 0..2 {
        doubt.push(n, n as u32, (Nanos(0), Nanos::MAX), Outcome::Unknown, [w(1, 1)]);
    }
    doubt.push(2, 2, (Nanos(0), Nanos(1)), Outcome::Committed, [r(1, 1)]);
    assert!(refused(&doubt, Format::Dbcop).contains("two transactions in doubt"));
    let mut long = History::new(Some(0));
    for n in 0..50_000 {
        long.push(n, 0, (Nanos(n), Nanos(n)), Outcome::Committed, [r(1, n), w(1, n + 1)]);
    }
    assert!(refused(&long, Format::ElleAppend).contains("write elle-register instead"));
    assert!(write(&long, Format::ElleRegister, &mut std::io::sink()).is_ok());
}

/// A simulated core's clock is ahead of the event it handles, at which its next transaction begins: what was undone has ended by then.
#[test]
fn who_tries_again_before_its_clock_says_so_is_written_for_elle() {
    let mut again = History::new(Some(0));
    let reason = again.intern("read-locked").expect("the first reason");
    let undone = Outcome::Aborted(reason);
    again.push(0, 0, (Nanos(10), Nanos(50)), undone, [r(1, 0)]);
    again.push(1, 0, (Nanos(40), Nanos(70)), undone, [r(1, 0)]);
    again.push(2, 0, (Nanos(40), Nanos(90)), Outcome::Committed, [r(1, 0), w(1, 1)]);
    for format in [Format::ElleAppend, Format::ElleRegister] {
        let back = import(&text(&again, format)).history;
        let times: Vec<_> = back.txns().iter().map(|t| (t.session, t.invoke.0, t.ret.0)).collect();
        assert_eq!(times, [(0, 10, 40), (0, 40, 40), (0, 40, 90)], "{format}");
    }
}

/// Rows in sessions that run one at a time.
fn in_sessions(rows: &[Row]) -> History {
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by_key(|row| row.interval.0);
    let mut free: Vec<u64> = Vec::new();
    let mut history = History::new(Some(0));
    let reason = history.intern("planned").expect("the first reason");
    for (n, row) in rows.into_iter().enumerate() {
        let session = free.iter().position(|&at| at <= row.interval.0).unwrap_or(free.len());
        free.resize(free.len().max(session + 1), 0);
        free[session] = row.interval.0.max(row.interval.1);
        row.push(&mut history, n, session as u32, reason);
    }
    history
}

/// A transaction without its id: session, times, outcome, operations.
type Shape = (u32, Option<(Nanos, Nanos)>, String, Vec<Op>);

/// What a format keeps of a history, in the order of sessions. `active` tells which of those in doubt took effect.
fn kept(history: &History, active: &[bool], format: Format) -> Vec<Shape> {
    let elle = matches!(format, Format::ElleAppend | Format::ElleRegister);
    let mut kept: Vec<Shape> = Vec::new();
    for (n, txn) in history.txns().iter().enumerate() {
        let outcome = match txn.outcome {
            Outcome::Aborted(reason) if elle => history.reason(reason).to_owned(),
            Outcome::Unknown if elle => "unknown".into(),
            _ if active[n] => "committed".into(),
            _ => "aborted".into(),
        };
        let ops: Vec<Op> = history.ops(txn).to_vec();
        let lost = format == Format::Plume && ops.is_empty();
        if !lost {
            kept.push((txn.session, elle.then_some((txn.invoke, txn.ret)), outcome, ops));
        }
    }
    kept.sort_by_key(|shape| (shape.0, shape.1));
    if matches!(format, Format::Plume | Format::Dbcop) {
        // The borders of aborted transactions are lost, or all of them that nobody read from.
        kept.retain(|shape| shape.2 == "committed");
    }
    kept
}

fn round_trip(rows: &[Row]) -> std::result::Result<(), TestCaseError> {
    let history = in_sessions(rows);
    let structural = check(&history, Level::ReadCommitted).anomaly.is_some_and(|a| a.kind < Kind::G0);
    let Some((written, active)) = as_written(&history) else {
        prop_assert!(check(&history, Level::ReadCommitted).counts.ambiguous_versions > 0);
        return Ok(());
    };
    for format in FOREIGN {
        let shown = text(&history, format);
        let back = read(shown.as_bytes(), Some(format));
        prop_assert!(back.is_ok(), "{} {}", back.unwrap_err(), shown);
        let back = back.unwrap();
        for level in Level::ALL.into_iter().filter(|&l| back.timed || l != Level::StrictSerializable) {
            let (before, after) = (check(&history, level), check(&back.history, level));
            prop_assert_eq!(before.passed(), after.passed(), "{} {} {} {}", format, before, after, shown);
        }
        if structural {
            continue;
        }
        let after = &back.history;
        // Only Elle's have doubts, and `kept` does not ask then.
        let committed: Vec<bool> = after.txns().iter().map(|t| t.outcome == Outcome::Committed).collect();
        let mut expected = kept(&written, &active, format);
        if format == Format::Dbcop {
            let mut sessions: Vec<u32> = expected.iter().map(|shape| shape.0).collect();
            sessions.dedup();
            let shift =
                u32::from(after.initial_version().is_some() && after.txns().iter().all(|t| t.session > 0));
            for shape in &mut expected {
                let place = sessions.iter().position(|&s| s == shape.0).expect("its own");
                shape.0 = place as u32 + shift;
            }
        }
        prop_assert_eq!(expected, kept(after, &committed, format), "{} {}", format, shown);
        // What was read is written as it was.
        let again = read(text(after, format).as_bytes(), Some(format));
        prop_assert!(again.is_ok());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_comes_back_with_the_same_verdicts(rows in rows()) {
        round_trip(&rows)?;
    }

    /// Whatever happens to the bytes, reading ends in a history that can be checked or in an error within the file.
    #[test]
    fn mutated_bytes_never_panic(
        format in prop::sample::select(FOREIGN.to_vec()),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 1..5),
        named in any::<bool>(),
    ) {
        let mut bytes = text(&sample(), format).into_bytes();
        for (place, byte, how) in edits {
            let at = place.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes[at] = b"0123456789\"[]{}(),:-.rwn;#"[usize::from(byte) % 26],
            }
        }
        match read(&bytes, named.then_some(format)) {
            Ok(back) => drop(check(&back.history, Level::StrictSerializable).to_string()),
            Err(error) => {
                prop_assert!(error.at.byte <= bytes.len());
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}

/// One wrong byte, at every place: a list without operations that ends behind the final read was once looked up
/// where nothing was left.
#[test]
fn any_one_wrong_byte_is_read_or_refused() {
    for format in FOREIGN {
        let good = text(&sample(), format).into_bytes();
        for at in 0..good.len() {
            for byte in *b"2]}:" {
                let mut bytes = good.clone();
                bytes[at] = byte;
                match read(&bytes, None) {
                    Ok(back) => drop(check(&back.history, Level::StrictSerializable)),
                    Err(error) => assert!(error.at.byte <= bytes.len(), "{format:?}, byte {at}: {error}"),
                }
            }
        }
    }
}

#[track_caller]
fn broken(text: &str, format: Option<Format>) -> FormatError {
    read(text.as_bytes(), format).expect_err("damaged")
}

#[test]
fn wrong_formats_are_named() {
    for written in Format::ALL {
        let text = text(&sample(), written);
        assert_eq!(Format::detect(text.as_bytes()), Some(written));
        for asked in Format::ALL.into_iter().filter(|&asked| asked != written) {
            let error = broken(&text, Some(asked));
            let both = [asked, written].iter().all(|f| f.name().starts_with("elle"));
            assert_eq!(
                both,
                !matches!(error.problem, Problem::OtherFormat { .. }),
                "{asked} {written}: {error}"
            );
        }
    }
    let error = broken(&text(&sample(), Format::Dbcop), Some(Format::Plume));
    assert_eq!(error.to_string(), "history:1:1: this looks like dbcop, not like plume");
    let error = broken("question: how fast?\n", None);
    assert!(
        error.to_string().ends_with("known: doorbell, elle-append, elle-register, dbcop, plume"),
        "{error}"
    );
    assert!(matches!(broken(" \n", None).problem, Problem::Empty));
    assert!(matches!(broken("# A page of text\n", None).problem, Problem::NoFormat));
    assert!("elle".parse::<Format>().expect_err("two of them").to_string().contains("elle-append"));
}

#[test]
fn every_cut_that_can_be_seen_is_called_a_cut() {
    for format in [Format::ElleAppend, Format::ElleRegister, Format::Dbcop] {
        let whole = text(&sample(), format);
        let whole = whole.trim_end();
        for end in 1..whole.len() {
            let error = broken(&whole[..end], Some(format));
            assert!(matches!(error.problem, Problem::Truncated { .. }), "{format} {end}: {error}");
            assert_eq!(error.at.byte, end, "{format}: {error}");
        }
    }
    let cut = text(&sample(), Format::ElleRegister);
    let cut = broken(&cut[..cut.len() - 120], None);
    assert_eq!((cut.problem, cut.at.line), (Problem::Truncated { transactions: 3 }, 10));
    let plume = text(&sample(), Format::Plume);
    for end in 1..plume.len() {
        // At the end of a line nothing is missing that a reader could miss.
        if !plume[..end].ends_with(['\n', ')']) {
            let error = broken(&plume[..end], Some(Format::Plume));
            assert!(matches!(error.problem, Problem::Truncated { .. }), "{end}: {error}");
        }
    }
}

#[test]
fn each_kind_of_damage_has_its_name_and_place() {
    let cases = [
        (Format::ElleRegister, ":index 4", ":index 3", 6, "id 3 was used before"),
        (Format::ElleRegister, ":type :ok", ":type :okay", 3, ":type is :okay, not :invoke"),
        (Format::ElleRegister, ":process 0", ":process zero", 4, ":process is `zero`"),
        (Format::ElleRegister, "[:w 7 1]", "[:cas 7 1]", 4, ":cas where :r or :w is due"),
        (
            Format::ElleRegister,
            "[:r 7 0]",
            "[:r 7 [0]]",
            6,
            "a sequence is read where a number from 0 or nil",
        ),
        (Format::ElleRegister, "[:r 7 0]", "[:r 7]", 6, "other than three parts"),
        (
            Format::ElleRegister,
            "[:r 7 0]",
            "[:r :x 0]",
            6,
            "key :x: keys are numbers from 0, or all are names",
        ),
        (Format::ElleRegister, ":type :invoke ", "", 2, "without :type"),
        (Format::ElleRegister, ":process 1", ":process 0", 5, "process 0 begins again before it ended"),
        (Format::ElleRegister, ":time 12", ":time 12 :time 13", 5, ":time stands twice"),
        (
            Format::ElleAppend,
            "[:append 7 1]",
            "[:append 7 -1]",
            4,
            "-1 is written; values are numbers from 0",
        ),
        (Format::ElleAppend, "[:r 7 [0 1]]", "[:r 7 [0 :x]]", 10, ":x in a list; values are numbers from 0"),
        (Format::Dbcop, "\"committed\":true", "\"comitted\":true", 2, "unknown field `comitted`"),
        (Format::Dbcop, "\"Read\"", "\"Raed\"", 3, "unknown variant `Raed`"),
        (Format::Dbcop, "\"variable\":7", "\"variable\":-7", 2, "invalid value: integer `-7`"),
        (Format::Plume, "r(7,0,0,0)", "x(7,0,0,0)", 3, "a line begins with r( or w("),
        (Format::Plume, "r(7,0,0,0)", "r(7,0,0)", 3, "another character where"),
        (Format::Plume, "r(7,0,0,0)", "r(7,0,0,-2)", 3, "only -1"),
        (
            Format::Plume,
            "r(7,0,0,0)",
            "r(7,9223372036854775808,0,0)",
            3,
            "9223372036854775808 is 2^63 or more",
        ),
        (Format::Plume, "r(7,1,1,3)", "r(7,1,1,0)", 8, "transaction id 0 was used before"),
        (Format::Plume, "r(7,1,1,3)\n", "\n", 8, "an empty line"),
    ];
    for (format, from, to, line, message) in cases {
        let whole = text(&sample(), format);
        assert!(whole.contains(from), "{format} {from}");
        let error = broken(&whole.replacen(from, to, 1), Some(format));
        assert!(error.to_string().contains(message), "{format} {from} → {to}: {error}");
        assert_eq!(error.at.line, line, "{format} {from} → {to}: {error}");
    }
}

#[test]
fn foreign_conventions_are_understood() {
    // Bare operations, names for keys, reads of nothing, no times: as Elle's own examples are.
    let elle = "{:type :invoke, :f :txn :value [[:w :x 2]], :process 0, :index 1}\n\
                {:type :ok, :f :txn :value [[:w :x 2]], :process 0, :index 2}\n\
                {:type :info, :f :partition, :process :nemesis, :index 3}\n\
                {:type :invoke, :f :txn :value [[:r :x nil]], :process 0, :index 4}\n\
                {:type :ok, :f :txn :value [[:r :x nil]], :process 0, :index 5}\n";
    let back = import(elle);
    assert!(back.timed && back.format == Format::ElleRegister);
    assert_eq!(kind(&back.history, Level::Serializable), None);
    assert_eq!(kind(&back.history, Level::StrictSerializable), Some(Kind::RealTime));
    // Elements in any order of numbers: the list is the order. The read of nothing is older than all.
    let lists = "[{:process 0, :type :ok, :value [[:append 5 9] [:r 6 [1]]]}\n\
                 {:process 1, :type :ok, :value [[:append 5 2] [:append 6 1]]}\n\
                 {:process 2, :type :ok, :value [[:r 5 [9 2]] [:r 7 []]]}]";
    let back = import(lists);
    assert_eq!((back.timed, back.format), (false, Format::ElleAppend));
    assert_eq!(kind(&back.history, Level::ReadCommitted), Some(Kind::G1c));
    // dbcop: sessions alone, short events, null before any write, beside a version that happens to be 0.
    let sessions = "[[{\"events\":[[\"r\",1,null],[\"w\",1,0]],\"committed\":true}],\
                    [{\"events\":[[\"r\",1,null],[\"w\",1,5]],\"committed\":true}]]";
    let back = import(sessions);
    assert_eq!(kind(&back.history, Level::ReadAtomicity), None);
    assert_eq!(kind(&back.history, Level::SnapshotIsolation), Some(Kind::GSingle));
    // Plume: 0 is the initial state unless it is written.
    let back = import("r(1,0,0,0)\nw(1,1,0,0)\nr(1,0,1,1)\nw(1,2,1,1)\n");
    assert_eq!(back.history.initial_version(), Some(0));
    assert_eq!(kind(&back.history, Level::SnapshotIsolation), Some(Kind::GSingle));
    // Versions that nobody wrote are a verdict and no error.
    let back = import("r(1,7,0,0)\n");
    assert_eq!(kind(&back.history, Level::ReadCommitted), Some(Kind::UnwrittenRead));
    // Elements that an aborted transaction appended may be seen by one and not by the next.
    let dirty = "[{:process 0 :type :fail :value [[:append 1 1]]}\n\
                 {:process 1 :type :ok :value [[:r 1 [1]]]}\n\
                 {:process 1 :type :ok :value [[:append 1 2]]}\n\
                 {:process 1 :type :ok :value [[:r 1 [2]]]}]";
    assert_eq!(kind(&import(dirty).history, Level::ReadCommitted), Some(Kind::G1a));
    // A final read that missed something is a transaction like any other.
    let stale = "[{:process 0 :type :ok :value [[:append 1 1]]}\n\
                 {:process 1 :type :ok :value [[:r 1 [1]]]}\n\
                 {:process 2 :type :ok :value [[:r 1 []]] :final-read true}]";
    assert_eq!(import(stale).history.txns().len(), 3);
}

/// Elle's lists: transactions one after the other in time, each in a session of its own.
fn lists(txns: &[(&str, &str)]) -> History {
    let event =
        |n: usize, end: &str, value: &str| format!("{{:process {n} :type :{end} :value [{value}]}}\n");
    let events =
        txns.iter().enumerate().map(|(n, (end, value))| event(n, "invoke", "") + &event(n, end, value));
    let back = import(&format!("[{}]", events.collect::<String>()));
    assert_eq!((back.timed, back.format), (true, Format::ElleAppend));
    back.history
}

#[test]
fn every_element_of_a_list_has_its_appender_and_its_place() {
    use Kind::{G1a, IncompatibleOrder, UnwrittenRead};
    let (one, five, last) = (("ok", "[:append 7 1]"), ("fail", "[:append 7 5]"), ("ok", "[:append 7 20]"));
    let read = |list| ("ok", list);
    let cases: &[(&[(&str, &str)], Kind)] = &[
        // Nobody appended 9, wherever it stands.
        (&[one, last, read("[:r 7 [1 9 20]]")], UnwrittenRead),
        (&[one, last, read("[:r 7 [9 1 20]]")], UnwrittenRead),
        (&[one, last, read("[:r 7 [1 20 9]]")], UnwrittenRead),
        (&[one, read("[:r 7 [9 1]]")], UnwrittenRead),
        (&[one, read("[:r 7 [0 1]]")], UnwrittenRead),
        (&[one, read("[:r 7 [0]]")], UnwrittenRead),
        (&[one, last, read("[:r 7 [1]]"), read("[:r 7 [1 9 20]]"), read("[:r 7 [1 20]]")], UnwrittenRead),
        (&[one, read("[:append 7 20] [:r 7 [1 9 20]]")], UnwrittenRead),
        // 5 was aborted.
        (&[one, five, last, read("[:r 7 [1 5 20]]")], G1a),
        (&[one, five, last, read("[:r 7 [5 1 20]]")], G1a),
        (&[one, five, last, read("[:r 7 [1 20 5]]")], G1a),
        (&[last, five, one, read("[:r 7 [20 5 1]]")], G1a),
        (&[one, five, read("[:append 7 20] [:r 7 [1 5 20]]")], G1a),
        (&[("fail", "[:append 7 0]"), one, read("[:r 7 [0 1]]"), read("[:r 8 nil]")], G1a),
        // No order has both, or twice the same.
        (&[one, last, read("[:r 7 [1 20]]"), read("[:r 7 [20 1]]")], IncompatibleOrder),
        (&[one, last, read("[:r 7 [20]]"), read("[:r 7 [1 20]]")], IncompatibleOrder),
        (&[one, last, read("[:r 7 [1 20]] [:r 7 [20]]")], IncompatibleOrder),
        (&[one, read("[:r 7 [1 1]]")], IncompatibleOrder),
        (&[one, last, read("[:r 7 [1 20 1]]"), read("[:r 7 [1 20]]")], IncompatibleOrder),
        (&[one, five, last, read("[:r 7 [20 1]]"), read("[:r 7 [1 5 20]]")], IncompatibleOrder),
    ];
    for (txns, expected) in cases {
        let history = lists(txns);
        assert_eq!(history.txns().len(), txns.len(), "{txns:?}");
        for level in Level::ALL {
            assert_eq!(kind(&history, level), Some(*expected), "{txns:?}");
        }
        // A file whose last read shows all lists is believed no more than others.
        let shown = txns.iter().map(|(end, value)| format!("{{:process 0 :type :{end} :value [{value}]}}"));
        let shown = shown.collect::<Vec<_>>().join("\n");
        let shown = format!("{} :final-read true}}", &shown[..shown.len() - 1]);
        assert_eq!(kind(&import(&shown).history, Level::ReadCommitted), Some(*expected), "{shown}");
    }
}

#[test]
fn lists_that_disagree_are_told_with_their_readers_and_appenders() {
    let history = lists(&[
        ("ok", "[:append 7 20]"),
        ("ok", "[:append 7 10]"),
        ("ok", "[:r 7 [20 10]]"),
        ("ok", "[:r 7 [10 20]]"),
        ("ok", "[:r 7 [10]]"),
    ]);
    let verdict = check(&history, Level::ReadCommitted);
    let anomaly = verdict.anomaly.as_ref().expect("an anomaly");
    assert_eq!((anomaly.kind, anomaly.occurrences), (Kind::IncompatibleOrder, 2));
    let shown = anomaly.to_string();
    for part in [
        "incompatible-order on table 0 key 7 version 2: element 10 was read where another read of the list has element 20",
        "T0 → T2 wr: T0 wrote version 1 and T2 read it",
        "T1 → T3 wr: T1 wrote version 2 and T3 read it",
    ] {
        assert!(shown.contains(part), "no {part} in\n{shown}");
    }
    for format in Format::ALL {
        let error = write(&history, format, &mut Vec::new()).expect_err("versions have one order");
        assert!(error.to_string().contains("read in several orders"), "{error}");
    }
    // What versions can hold is written, and judged alike.
    let history = lists(&[
        ("ok", "[:append 7 20]"),
        ("fail", "[:append 7 5]"),
        ("ok", "[:append 7 10]"),
        ("ok", "[:r 7 [20 5 10]]"),
    ]);
    for format in Format::ALL {
        let back = import(&text(&history, format)).history;
        assert_eq!(kind(&back, Level::ReadCommitted), Some(Kind::G1a), "{format}");
    }
}

#[test]
fn an_element_ahead_of_the_last_shows_that_its_appender_took_effect() {
    let doubt = ("info", "[:append 7 1] [:append 8 1]");
    let history = lists(&[doubt, ("ok", "[:append 7 2]"), ("ok", "[:r 7 [1 2]] [:r 8 []]")]);
    assert_eq!(kind(&history, Level::ReadAtomicity), None);
    assert_eq!(kind(&history, Level::SnapshotIsolation), Some(Kind::GSingle));
    // As the last it does so by itself, and nothing is made of it.
    let history = lists(&[doubt, ("ok", "[:r 7 [1]] [:r 8 []]")]);
    assert_eq!(history.txns()[0].outcome, Outcome::Unknown);
    assert_eq!(kind(&history, Level::ReadAtomicity), Some(Kind::FracturedRead));
    // Whoever took effect thereby has read, too; who did not has not.
    let reader = ("info", "[:append 8 1] [:r 7 [9 1]]");
    let history = lists(&[("ok", "[:append 7 1]"), reader, ("ok", "[:append 8 2]"), ("ok", "[:r 8 [1 2]]")]);
    assert_eq!(kind(&history, Level::ReadCommitted), Some(Kind::UnwrittenRead));
    let history = lists(&[("ok", "[:append 7 1]"), reader, ("ok", "[:append 8 2]"), ("ok", "[:r 8 [2]]")]);
    assert_eq!(kind(&history, Level::StrictSerializable), None);
}

#[test]
fn sound_lists_pass_and_their_first_appender_is_no_loader() {
    for (a, b, c) in [(1, 2, 3), (3, 1, 2), (0, 2, 1)] {
        let history = lists(&[
            ("ok", &format!("[:append 7 {a}]")),
            ("fail", "[:append 7 50]"),
            ("info", &format!("[:append 7 {b}]")),
            ("ok", &format!("[:r 7 [{a} {b}]]")),
            ("ok", &format!("[:r 7 [{a} {b}]] [:append 7 {c}] [:r 7 [{a} {b} {c}]]")),
            ("ok", &format!("[:r 7 [{a} {b} {c}]]")),
            ("fail", "[:r 7 [50 51]]"),
        ]);
        assert_eq!((history.txns().len(), history.initial_version()), (7, None));
        assert_eq!(kind(&history, Level::StrictSerializable), None, "{a} {b} {c}");
        for format in [Format::Doorbell, Format::ElleAppend, Format::ElleRegister] {
            let back = import(&text(&history, format)).history;
            assert_eq!((back.txns().len(), kind(&back, Level::StrictSerializable)), (7, None), "{format}");
        }
    }
    assert_eq!(lists(&[("ok", "[:append 7 1]")]).txns().len(), 1);
    // What nobody read was appended in the order of its appenders' ends, whatever its number is.
    let history = lists(&[
        ("ok", "[:append 7 5] [:append 8 1]"),
        ("ok", "[:append 7 3] [:append 8 2]"),
        ("ok", "[:r 8 [1 2]]"),
    ]);
    assert_eq!(kind(&history, Level::StrictSerializable), None);
}

/// A transaction over lists: how it ends, what it appends (records) and which lists it reads.
type Listed = (&'static str, Vec<std::result::Result<u64, (u64, Vec<u64>)>>);

fn listed() -> impl Strategy<Value = Vec<Listed>> {
    let read = (0..2u64, prop::collection::vec(0..6u64, 0..4)).prop_map(Err);
    let ops = prop::collection::vec(prop_oneof![(0..2u64).prop_map(Ok), read], 0..4);
    prop::collection::vec((prop::sample::select(vec!["ok", "ok", "ok", "fail", "info"]), ops), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The three anomalies that lists show by themselves, against their definitions.
    #[test]
    fn lists_agree_with_their_definitions(txns in listed(), reversed in any::<bool>()) {
        // Each element is appended once, to one record, in growing order or not.
        let mut appended: Vec<(u64, u64, usize)> = Vec::new();
        let mut script: Vec<(&str, String)> = Vec::new();
        for (n, (end, ops)) in txns.iter().enumerate() {
            let mut value = String::new();
            for op in ops {
                value += &match op {
                    Ok(record) => {
                        let element = appended.len() as u64;
                        let element = if reversed && element < 6 { 5 - element } else { element };
                        appended.push((*record, element, n));
                        format!("[:append {record} {element}] ")
                    }
                    Err((record, list)) => format!("[:r {record} {list:?}] ").replace(',', ""),
                };
            }
            script.push((end, value));
        }
        let writer = |record, element| appended.iter().find(|a| (a.0, a.1) == (record, element)).map(|a| a.2);
        let reads = |n: usize| txns[n].1.iter().filter_map(|op| op.as_ref().err());
        let mut active: Vec<bool> = txns.iter().map(|txn| txn.0 == "ok").collect();
        for _ in 0..txns.len() {
            for n in (0..txns.len()).filter(|&n| active[n]).collect::<Vec<_>>() {
                let seen = reads(n).flat_map(|(record, list)| list.iter().filter_map(|&e| writer(*record, e)));
                seen.filter(|&by| txns[by].0 == "info").for_each(|by| active[by] = true);
            }
        }
        let (mut expected, mut orders) = (Vec::new(), Vec::new());
        for (record, list) in (0..txns.len()).filter(|&n| active[n]).flat_map(reads) {
            let end = |&e: &u64| writer(*record, e).map(|by| txns[by].0);
            expected.extend(list.iter().any(|e| end(e).is_none()).then_some(Kind::UnwrittenRead));
            expected.extend(list.iter().any(|e| end(e) == Some("fail")).then_some(Kind::G1a));
            let order: Vec<u64> =
                list.iter().copied().filter(|e| end(e).is_some_and(|end| end != "fail")).collect();
            let twice = (1..order.len()).any(|n| order[..n].contains(&order[n]));
            let differs = |(other, theirs): &(u64, Vec<u64>)| {
                other == record && order.iter().zip(theirs).any(|(a, b)| a != b)
            };
            expected.extend((twice || orders.iter().any(differs)).then_some(Kind::IncompatibleOrder));
            orders.push((*record, order));
        }
        expected.sort();
        expected.dedup();
        let script: Vec<(&str, &str)> = script.iter().map(|(end, value)| (*end, value.as_str())).collect();
        prop_assume!(!appended.is_empty());
        let verdict = check(&lists(&script), Level::ReadCommitted);
        let found = verdict.anomaly.iter().chain(&verdict.others).map(|a| a.kind);
        let own = [Kind::UnwrittenRead, Kind::IncompatibleOrder, Kind::G1a];
        let found: Vec<Kind> = found.filter(|kind| own.contains(kind)).collect();
        prop_assert_eq!(found, expected, "{:?} {}", script, verdict);
    }
}
