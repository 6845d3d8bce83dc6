//! Histories on disk: what is written comes back, and what is damaged is named and placed.

use super::format::{FormatError, Problem, read, write, write_share};
use super::*;
use proptest::prelude::*;

fn text(history: &History) -> String {
    let mut out = Vec::new();
    write(history, &mut out).expect("memory takes all");
    String::from_utf8(out).expect("JSON is UTF-8")
}

fn sample() -> History {
    let doubt = Row { interval: (7, 0), end: End::Doubt, ops: vec![w(2, u64::MAX)] };
    let abort = Row { interval: (1, 9), end: End::Abort, ops: vec![r(1, 0)] };
    history(&[commit(0, 5, [r(1, 0), w(1, 1)]), abort, doubt, commit(8, 9, [])])
}

#[track_caller]
fn broken(bytes: &str) -> FormatError {
    read(bytes.as_bytes()).expect_err("damaged")
}

#[test]
fn what_is_written_comes_back() {
    let first = text(&sample());
    let again = read(first.as_bytes()).expect("just written");
    assert_eq!(text(&again), first);
    assert_eq!(again.txns().len(), 4);
    assert_eq!(again.ops(&again.txns()[0]), [r(1, 0), w(1, 1)]);
    assert_eq!(again.txns()[2].ret, Nanos::MAX);
    let mut odd = History::new(None);
    let reason = odd.intern("\"quoted\"\n\u{1}").expect("first");
    odd.push(u64::MAX, u32::MAX, (Nanos(1), Nanos(2)), Outcome::Aborted(reason), []);
    let again = read(text(&odd).as_bytes()).expect("just written");
    let Outcome::Aborted(reason) = again.txns()[0].outcome else { panic!("{again:?}") };
    assert_eq!((again.reason(reason), again.initial_version()), ("\"quoted\"\n\u{1}", None));
}

#[test]
fn digests_come_back_and_those_of_shares_are_put_together() {
    let digest = Digest::from_number;
    let share = |key: u64, number: u32| {
        let mut share =
            history(&[commit(0, 5, [r(key, 0).with(digest(number)), w(3, key).with(Digest::NONE)])]);
        share.learn_initial(|asked| asked.iter().map(|&key| (key, digest(number))).collect());
        let first = text(&share);
        let again = read(first.as_bytes()).expect("just written");
        assert_eq!(text(&again), first);
        assert_eq!(again.ops(&again.txns()[0]), share.ops(&share.txns()[0]));
        assert_eq!(again.initial(), [(k(key), digest(number))]);
        again
    };
    let whole = History::join([share(2, Digest::MAX), share(1, 1), share(2, Digest::MAX)]);
    assert_eq!(whole.initial(), [(k(1), digest(1)), (k(2), digest(Digest::MAX))]);
    assert!(text(&whole).contains("],\"initial\":[[0,1,1],[0,2,16777215]],\"count\":3}"));
}

#[test]
fn a_share_says_so_wherever_it_is_read_and_joins_the_whole() {
    let share = Share { node: 1, nodes: 3 };
    let mut out = Vec::new();
    write_share(&sample(), share, &mut out).expect("memory takes all");
    let read_back = read(&out).expect("just written");
    assert_eq!(read_back.share(), Some(share));
    assert_eq!(text(&read_back).as_bytes(), out, "written again it is one still");
    assert_eq!(text(&History::join([read_back])), text(&sample()), "all shares together are the whole");
    let bent = |to: &str| broken(&String::from_utf8_lossy(&out).replacen("[1,3]", to, 1)).to_string();
    assert!(bent("[3,3]").contains("there is no node 3 of 3"));
    assert!(bent("[1]").contains("invalid length"));
    let late = text(&sample()).replacen("],\"count\"", "],\"share\":[1,3],\"count\"", 1);
    assert!(broken(&late).to_string().contains("`share` ahead of `transactions`"));
}

#[test]
fn the_documented_example_is_readable_and_is_what_is_written() {
    let source = include_str!("../format.rs");
    let example: Vec<&str> = source
        .lines()
        .skip_while(|line| !line.contains("```json"))
        .skip(1)
        .take_while(|line| !line.contains("```"))
        .map(|line| line.trim_start_matches("//! "))
        .collect();
    let example = example.join("\n") + "\n";
    assert_eq!(text(&read(example.as_bytes()).expect("documented")), example);
}

#[test]
fn every_cut_is_called_a_cut() {
    let whole = text(&sample());
    let whole = whole.trim_end();
    for end in 0..whole.len() {
        let error = broken(&whole[..end]);
        assert!(matches!(error.problem, Problem::Truncated { .. }), "{end}: {error}");
        assert_eq!(error.at.byte, end, "{error}");
    }
    let cut = broken(&whole[..whole.len() - 30]);
    assert_eq!(cut.problem, Problem::Truncated { transactions: 3 });
}

#[test]
fn each_kind_of_damage_has_its_name_and_place() {
    let whole = text(&sample());
    let with = |from: &str, to: &str| {
        assert!(whole.contains(from));
        broken(&whole.replacen(from, to, 1))
    };
    let error = with("\"id\":1", "\"id\":0");
    assert_eq!((&error.problem, error.at.line), (&Problem::DuplicateId { id: 0 }, 3));
    let byte = whole.find("\"id\":1").expect("there") + "\"id\":1".len();
    assert_eq!(
        (error.to_string().as_str(), error.at.byte),
        ("history:3:7: transaction id 0 was used before", byte)
    );
    let error = with("\"version\":3", "\"version\":4");
    assert_eq!((error.problem, error.at.line), (Problem::UnknownVersion { found: 4 }, 1));
    // The versions before knew no digests, the first no stretches of absent keys; they are read.
    for before in [1, 2] {
        let older = whole.replacen("\"version\":3", &format!("\"version\":{before}"), 1);
        assert_eq!(read(older.as_bytes()).expect("it is known").txns().len(), 4);
    }
    let error = with("doorbell-history", "elle");
    assert_eq!(error.problem, Problem::WrongFormat { found: "elle".into() });
    let error = with("\"count\":4", "\"count\":5");
    assert_eq!((error.problem, error.at.line), (Problem::WrongCount { count: 5, transactions: 4 }, 6));
    for (from, to, line, message) in [
        ("\"session\":0", "\"sesion\":0", 2, "unknown field `sesion`"),
        ("\"session\":0", "\"id\":0", 2, "duplicate field `id`"),
        (",\"outcome\":\"committed\"", "", 2, "missing field `outcome`"),
        ("\"committed\"", "\"comitted\"", 2, "unknown variant `comitted`"),
        (",\"reason\":\"planned\"", "", 3, "missing field `reason`"),
        ("\"return_ns\":null", "\"return_ns\":3", 4, "must be null"),
        ("\"return_ns\":5", "\"return_ns\":null", 2, "only an unknown outcome"),
        ("[\"r\",0,1,0]", "[\"r\",0,1]", 2, "invalid length 3"),
        ("[\"r\",0,1,0]", "[\"r\",0,1,0,5,5]", 2, "trailing characters"),
        ("[\"r\",0,1,0]", "[\"r\",0,1,0,0]", 2, "a digest is a number from 1 to 16777215, not 0"),
        ("[\"r\",0,1,0]", "[\"r\",0,1,0,16777216]", 2, "not 16777216"),
        ("[\"r\",0,1,0]", "[\"n\",0,1,0,5]", 2, "keys that are absent have no digest"),
        ("],\"count\":4", "],\"initial\":[[0,1,0]],\"count\":4", 6, "a digest is a number"),
        ("],\"count\":4", "],\"initial\":[[0,1]],\"count\":4", 6, "invalid length 2"),
        ("[\"r\",0,1,0]", "[\"x\",0,1,0]", 2, "unknown variant `x`"),
        ("[\"r\",0,1,0]", "[\"r\",0,1,-1]", 2, "invalid value: integer `-1`"),
        ("[\"r\",0,1,0]", "[\"r\",0,1,1.5]", 2, "invalid type: floating point"),
        ("[\"r\",0,1,0]", "[\"r\",4294967296,1,1]", 2, "invalid value: integer `4294967296`"),
        ("\"initial_version\":0,", "", 1, "ahead of `transactions`"),
        ("\"count\":4", "\"count\":4,\"extra\":1", 6, "unknown field `extra`"),
        ("\"count\":4}", "\"count\":4}{}", 6, "trailing characters"),
    ] {
        let error = with(from, to);
        let Problem::Invalid(found) = &error.problem else { panic!("{from} → {to}: {error}") };
        assert!(found.contains(message), "{from} → {to}: {error}");
        assert_eq!(error.at.line, line, "{from} → {to}: {error}");
    }
    assert!(matches!(broken("[]").problem, Problem::Invalid(_)));
    assert!(matches!(broken("{:type :ok, :f :txn}").problem, Problem::Invalid(_)));
    assert!(matches!(broken(&"[".repeat(1_000_000)).problem, Problem::Invalid(_)));
}

#[test]
fn a_missing_file_is_named() {
    let error = super::format::read_file(std::path::Path::new("no/such/history.json")).expect_err("missing");
    assert!(error.to_string().starts_with("cannot read no/such/history.json: "), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens to the bytes, reading ends in a history or in an error within the file, and a history that
    /// was read can be checked.
    #[test]
    fn mutated_bytes_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..5u8), 1..6),
    ) {
        let mut bytes = text(&sample()).into_bytes();
        for (place, byte, how) in edits {
            if bytes.is_empty() {
                break;
            }
            let at = place.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                3 => bytes[at] = b"0123456789\"[]{},:-.eE"[usize::from(byte) % 21],
                _ => {
                    let copy: Vec<u8> = bytes[at..bytes.len().min(at + usize::from(byte))].to_vec();
                    bytes.splice(at..at, copy);
                }
            }
        }
        match read(&bytes) {
            Ok(history) => drop(check(&history, Level::StrictSerializable).to_string()),
            Err(error) => {
                prop_assert!(error.at.byte <= bytes.len());
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }

    /// Any bytes at all.
    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read(&bytes).is_err());
    }
}
