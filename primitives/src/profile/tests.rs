use super::*;

const TEXT: &str = include_str!("../../profiles/cx4-edr.profile.yaml");

fn shipped() -> Profile {
    Profile::shipped("cx4-edr").unwrap()
}

fn refusal(text: &str) -> String {
    Profile::parse(text, "here").unwrap_err().to_string()
}

/// The 1-based line on which `needle` first stands.
fn line_of(text: &str, needle: &str) -> usize {
    text.lines().position(|l| l.contains(needle)).unwrap() + 1
}

#[test]
fn every_shipped_profile_loads_under_its_own_name() {
    for name in Profile::NAMES {
        assert_eq!(Profile::shipped(name).unwrap().name, *name);
    }
    let error = Profile::shipped("cx9").unwrap_err().to_string();
    assert!(error.contains("cx9") && error.contains("cx4-edr"), "{error}");
}

/// What is taken over from another card, or from another number of the same one, is that number.
#[test]
fn analogies_hold() {
    const CARDS: [(&str, &str); 5] = [
        ("Connect-IB", "connectib-fdr"),
        ("ConnectX-3", "cx3"),
        ("ConnectX-4", "cx4-edr"),
        ("ConnectX-5", "cx5"),
        ("ConnectX-6", "cx6"),
    ];
    let number = |profile: &Profile, section: &str, name: &str| {
        profile.quantities().find(|q| (q.0, q.1) == (section, name)).map(|q| q.2.value)
    };
    let (mut found, mut wrong) = (0, Vec::new());
    for own in Profile::NAMES.iter().map(|name| Profile::shipped(name).unwrap()) {
        for (section, name, quantity) in own.quantities() {
            let says = |what: &str| {
                let at = format!("as {what}");
                let rest = quantity.reference.split_once(&at).map(|(_, rest)| rest.chars().next());
                rest.is_some_and(|next| next.is_none_or(|c| ",;:".contains(c)))
            };
            let card = CARDS
                .iter()
                .filter(|(card, _)| says(card))
                .map(|(card, file)| (*card, number(&Profile::shipped(file).unwrap(), section, name)));
            let read = says("READ").then(|| ("READ", number(&own, section, &name.replace("atomic", "read"))));
            for (what, there) in card.chain(read) {
                found += 1;
                if there != Some(quantity.value) {
                    wrong.push(format!("{}: {name} is {}, {what}'s {there:?}", own.name, quantity.value));
                }
            }
        }
    }
    assert!(found > 300, "{found}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_written_profile_reads_back_the_same() {
    let profile = shipped();
    let again = Profile::parse(&profile.to_yaml().unwrap(), "again").unwrap();
    assert_eq!(profile, again);
    assert_eq!(profile.content_hash(), again.content_hash());
}

#[test]
fn the_hash_follows_numbers_and_not_words() {
    let profile = shipped();
    let mut words = profile.clone();
    words.description.push_str(" (annotated)");
    words.nic.mtu.reference.push('.');
    assert_eq!(words.content_hash(), profile.content_hash());
    let mut number = profile.clone();
    number.nic.mtu.value += 1.0;
    assert_ne!(number.content_hash(), profile.content_hash());
}

#[test]
fn each_number_is_counted_once_by_source() {
    let profile = shipped();
    let c = profile.sources();
    assert_eq!(
        c.measured + c.published + c.calibrated + c.recalled + c.assumed,
        profile.quantities().count()
    );
    assert_eq!(c.measured, 0, "nothing of a shipped profile was measured here");
    assert!(c.published > 0 && c.calibrated > 0);
}

#[test]
fn a_missing_field_is_named_with_its_place() {
    let text: String = TEXT
        .lines()
        .filter(|l| !l.trim_start().starts_with("link_rate:"))
        .map(|l| format!("{l}\n"))
        .collect();
    let error = refusal(&text);
    let nic = line_of(&text, "nic:");
    assert_eq!(
        error,
        format!("here:{nic}:1: nic: missing field `link_rate`"),
        "where the map that should have it begins"
    );
}

#[test]
fn an_unknown_key_is_named_with_its_line() {
    let text = TEXT.replace("  link_rate:", "  link_speed:");
    let error = refusal(&text);
    let line = line_of(&text, "  link_speed:");
    assert!(error.contains("link_speed") && error.contains(&format!(":{line}:")), "line {line}: {error}");
}

#[test]
fn a_repeated_key_is_refused() {
    let line = TEXT.lines().find(|l| l.starts_with("  link_rate:")).unwrap();
    let error = refusal(&TEXT.replace(line, &format!("{line}\n{line}")));
    let again = line_of(TEXT, "  link_rate:") + 1;
    assert!(error.starts_with(&format!("here:{again}:3: ")) && error.contains("link_rate"), "{error}");
}

#[test]
fn a_number_without_a_source_is_refused() {
    let line = TEXT.lines().find(|l| l.starts_with("  link_rate:")).unwrap();
    let error = refusal(&TEXT.replace(line, "  link_rate: {value: 12.1, unit: GB/s, ref: none}"));
    assert!(error.contains("source"), "{error}");
}

#[test]
fn impossible_numbers_are_refused_by_name() {
    type Break = fn(&mut Profile);
    let cases: [(&str, Break); 29] = [
        ("nic.link_rate", |p| p.nic.link_rate.value = 0.0),
        ("nic.pcie_read", |p| p.nic.pcie_read.value = -1.0),
        ("nic.qp_cache_entries", |p| p.nic.qp_cache_entries.value = 0.0),
        ("nic.max_rd_atomic", |p| p.nic.max_rd_atomic.value = 1.5),
        ("nic.mtu", |p| p.nic.mtu.value = f64::NAN),
        ("nic.link_rate", |p| p.nic.link_rate.value = 1e-300),
        ("nic.pcie_rate", |p| p.nic.pcie_rate.value = f64::NAN),
        ("nic.atomic_hold", |p| p.nic.atomic_hold.value = 1e11),
        ("nic.cards", |p| p.nic.cards.value = 65.0),
        ("nic.mtu", |p| p.nic.mtu.value = 1.0),
        ("nic.ud_mtu", |p| p.nic.ud_mtu.value = 1.0),
        ("nic.max_send_depth", |p| p.nic.max_send_depth.value = 1.0),
        ("nic.max_recv_depth", |p| p.nic.max_recv_depth.value = 1.0),
        ("nic.cable_latency", |p| p.nic.cable_latency.value = 1e9),
        ("nic.pass_latency", |p| p.nic.pass_latency.value = -1.0),
        ("nic.message_gap", |p| p.nic.message_gap.value = -1.0),
        ("cpu.receiver", |p| p.cpu.receiver.value = 2e9),
        ("cpu.doorbell", |p| p.cpu.doorbell.value = f64::INFINITY),
        ("cpu.copy_byte", |p| p.cpu.copy_byte.unit = Unit::Ns),
        ("cpu.probe", |p| p.cpu.probe.reference.clear()),
        ("nic.requester_read", |p| p.nic.requester_read.value = 0.0),
        ("nic.responder_send", |p| p.nic.responder_send.value = 0.0),
        ("nic.atomic_hold", |p| p.nic.atomic_hold.value = 0.0),
        ("nic.atomic_hold_on_card", |p| {
            p.nic.on_card_memory.value = 65_536.0;
            p.nic.atomic_hold_on_card.value = 0.0;
        }),
        ("nic.max_inline", |p| p.nic.max_inline.value = 1e6),
        ("nic.requester_read", |p| p.nic.requester_read.value = 2e6),
        ("nic.rnr_timer", |p| p.nic.rnr_timer.value = 2e9),
        ("nic.pcie_rate", |p| p.nic.pcie_rate.value = 2e4),
        ("cpu.attempt", |p| p.cpu.attempt.value = 1e300),
    ];
    for (field, break_it) in cases {
        let mut profile = shipped();
        break_it(&mut profile);
        match profile.validate() {
            Err(ProfileError::Impossible { field: named, .. }) => assert_eq!(named, field),
            other => panic!("{field}: {other:?}"),
        }
    }
}

/// Where the posting core does the work, an end of the engine takes no time at all; a card for messages has no other verb's.
#[test]
fn an_end_of_the_engine_may_be_left_out_as_a_whole() {
    let mut profile = shipped();
    for verb in ["read", "write", "atomic", "send"] {
        profile.nic.number_mut(&format!("responder_{verb}")).unwrap().value = 0.0;
    }
    profile.validate().unwrap();
    assert_eq!(Profile::shipped("tcp-10g").unwrap().nic.requester_read.value, 0.0);
}

#[test]
fn cpu_costs_follow_size() {
    let cpu = shipped().cpu;
    use crate::fabric::CpuWork::{Copy, Inline, Resume, Think};
    assert_eq!(cpu.cost_ns(Resume), 20.0);
    assert_eq!(cpu.cost_ns(Inline(1)), cpu.cost_ns(Inline(64)));
    assert_eq!(cpu.cost_ns(Inline(65)), 2.0 * cpu.cost_ns(Inline(64)));
    assert!(cpu.cost_ns(Copy(4096)) > 10.0 * cpu.cost_ns(Copy(64)));
    assert_eq!(cpu.cost_ns(Think(crate::units::Nanos(7))), 7.0);
}

#[test]
fn an_unknown_unit_is_refused_with_its_line() {
    let text = TEXT.replace("unit: GB/s", "unit: furlong");
    let error = refusal(&text);
    assert!(
        error.contains("furlong") && error.contains(&format!(":{}:", line_of(&text, "furlong"))),
        "{error}"
    );
}

/// What RCC says of its cluster is one number on a card and one on a machine's threads, which no other profile has.
#[test]
fn profiles_of_rcc_differ_in_one_number_each() {
    for (name, base, section, number) in
        [("cx4-edr-rcc", "cx4-edr", "nic", "message_gap"), ("tcp-10g-rcc", "tcp-10g", "cpu", "receiver")]
    {
        let (own, base) = (Profile::shipped(name).unwrap(), Profile::shipped(base).unwrap());
        let differ: Vec<_> =
            own.quantities().zip(base.quantities()).filter(|(a, b)| a.2.value != b.2.value).collect();
        let [((of, which, own), (.., base))] = differ[..] else { panic!("{name}: {} differ", differ.len()) };
        assert_eq!((of, which, base.value), (section, number, 0.0), "{name}");
        assert!(own.value > 0.0 && own.source < Source::Recalled, "{name}: {own:?}");
    }
    let gap = Profile::shipped("cx4-edr-rcc").unwrap().nic.message_gap;
    assert!((1e3 / gap.value - 33.0).abs() < 0.05, "33 M messages/s, and not {} ns apart", gap.value);
    for name in Profile::NAMES.iter().filter(|name| !name.ends_with("-rcc")) {
        let profile = Profile::shipped(name).unwrap();
        assert_eq!((profile.nic.message_gap.value, profile.cpu.receiver.value), (0.0, 0.0), "{name}");
    }
}

#[test]
fn a_profile_that_extends_another_says_only_what_differs() {
    let base = shipped();
    let two = Profile::shipped("cx4-edr-x2").unwrap();
    assert_eq!((two.nic.cards.value, two.name.as_str()), (2.0, "cx4-edr-x2"));
    assert_eq!(
        Profile {
            nic: crate::profile::NicProfile { cards: base.nic.cards.clone(), ..two.nic },
            ..base.clone()
        },
        base
    );
    let text = "extends: cx4-edr\nname: mine\ndescription: d\nnic:\n  link_sped: {value: 1, unit: GB/s, source: assumed, ref: x}\n";
    let error = refusal(text);
    assert!(error.contains("link_sped") && error.contains(":5:"), "{error}");
    let doubted = "extends: cx4-edr\nname: mine\ndescription: d\ndoubt: made up\n";
    assert_eq!(Profile::parse(doubted, "here").unwrap().doubt.as_deref(), Some("made up"));
    let error = refusal("name: mine\nextends: cx9\ndescription: d\n");
    assert_eq!(error, "here:2:10: extends: no profile is called `cx9`");
    // The bounds are checked in what comes out.
    let error = refusal(
        "extends: cx4-edr\nname: m\ndescription: d\nnic:\n  mtu: {value: 0, unit: B, source: assumed, ref: x}\n",
    );
    assert!(error.starts_with("here:5:8: nic.mtu = 0 B: must be"), "{error}");
    // A number that nobody wrote there has its place where it was written.
    let bad = TEXT.lines().position(|l| l.starts_with("  pcie_read:")).unwrap();
    let text: Vec<String> =
        TEXT.lines()
            .map(|l| {
                if l.starts_with("  pcie_read:") {
                    l.replacen("value: ", "value: -", 1)
                } else {
                    l.to_owned()
                }
            })
            .collect();
    let error = refusal(&text.join("\n"));
    assert!(error.starts_with(&format!("here:{}:14: nic.pcie_read = -", bad + 1)), "{error}");
}

#[test]
fn what_one_card_was_fitted_to_is_assumed_of_another() {
    use super::Source;
    let base = shipped();
    let roce = Profile::shipped("cx4-roce").unwrap();
    let (of_base, of_roce) = (&base.nic.requester_read, &roce.nic.requester_read);
    assert_eq!((of_base.source, of_roce.source), (Source::Calibrated, Source::Assumed));
    assert_eq!(of_roce.value, of_base.value);
    assert_eq!(
        of_roce.reference,
        format!("carried over from cx4-edr, calibrated there: {}", of_base.reference)
    );
    // What is printed or recalled of one card is of that one, too. The processor is the same.
    let (of_base, of_roce) = (&base.nic.max_inline, &roce.nic.max_inline);
    assert_eq!((of_base.source, of_roce.source), (Source::Published, Source::Assumed));
    assert_eq!(roce.cpu, base.cpu);
    let base = Profile::shipped("connectib-fdr").unwrap();
    let other = "extends: connectib-fdr\nname: m\ndescription: d\ncpu:\n  model: another\n";
    let other = Profile::parse(other, "here").unwrap();
    assert_eq!((base.cpu.request.source, other.cpu.request.source), (Source::Calibrated, Source::Assumed));
    assert_eq!(other.nic, base.nic);
}

#[test]
fn each_reason_for_a_doubt_goes_by_itself() {
    let mut profile = shipped();
    profile.add_doubt("not calibrated yet: why");
    profile.add_doubt("measured on a busy machine: 2 points, and the engine");
    let both = "not calibrated yet: why; and measured on a busy machine: 2 points, and the engine";
    assert_eq!(profile.doubt.as_deref(), Some(both));
    assert!(profile.is_doubted("not calibrated yet: why") && profile.is_doubted("not calibrated yet"));
    assert!(!profile.is_doubted("calibrated yet") && !profile.is_doubted("not calibrated yet: because"));
    profile.clear_doubt("not calibrated yet: because");
    assert_eq!(profile.doubt.as_deref(), Some(both));
    profile.clear_doubt("not calibrated yet");
    assert_eq!(profile.doubt.as_deref(), Some("measured on a busy machine: 2 points, and the engine"));
    profile.clear_doubt("measured on a busy machine: 2 points, and the engine");
    profile.clear_doubt("nothing");
    assert_eq!(profile.doubt, None);
}

#[test]
fn profiles_that_extend_each_other_are_refused() {
    let folder = std::env::temp_dir().join(format!("doorbell-extends-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, base: &str| {
        let text = format!("extends: {base}\nname: {name}\ndescription: d\n");
        std::fs::write(folder.join(format!("{name}.profile.yaml")), text).unwrap();
        folder.join(format!("{name}.profile.yaml"))
    };
    let chained = write("d", "cx3");
    write("c", "./d.profile.yaml");
    let end = write("e", "./c.profile.yaml");
    assert_eq!(
        Profile::load(&end).unwrap().nic,
        Profile::shipped("cx3").unwrap().nic,
        "{}",
        chained.display()
    );
    let a = write("a", "./b.profile.yaml");
    write("b", "./a.profile.yaml");
    let own = write("f", "./f.profile.yaml");
    let missing = write("g", "./nowhere.profile.yaml");
    for path in [a, own] {
        let error = Profile::load(&path).unwrap_err();
        let ProfileError::Extends { why, .. } = &error else { panic!("{error}") };
        assert!(matches!(**why, ProfileError::Cycle { .. }), "{error}");
        assert!(error.to_string().contains(&*path.file_name().unwrap().to_string_lossy()), "{error}");
    }
    // Thousands, each of which is another.
    (0..2_000).for_each(|n| drop(write(&format!("n{n}"), &format!("./n{}.profile.yaml", n + 1))));
    let deep = Profile::load(&folder.join("n0.profile.yaml")).unwrap_err();
    let ProfileError::Extends { why, .. } = &deep else { panic!("{deep}") };
    assert!(matches!(**why, ProfileError::Deep { .. }), "{deep}");
    assert!(deep.to_string().contains("more than 32 profiles extend one another"), "{deep}");
    let Err(ProfileError::Extends { mistake, why, .. }) = Profile::load(&missing) else {
        panic!("it is there")
    };
    assert!(
        matches!(*why, ProfileError::Read { .. }) && mistake.place == Some(Place::new(1, 10)),
        "{mistake:?}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn free_bounds_hold_in_files_and_not_in_what_is_asked_later() {
    let text = |free: &str| {
        format!(
            "extends: cx4-edr\nname: m\ndescription: d\nnic:\n  link_rate: {{value: 5, unit: GB/s, source: assumed, free: {free}, ref: x}}\n"
        )
    };
    let mut profile = Profile::parse(&text("[1, 6]"), "here").unwrap();
    for bad in ["[6, 7]", "[0, 7]", "[7, 1]"] {
        let error = refusal(&text(bad));
        assert!(error.contains("nic.link_rate") && error.contains("free"), "{bad}: {error}");
    }
    let error = refusal(&text("[5]"));
    assert!(error.contains("two bounds are wanted, [low, high], not [5.0]"), "{error}");
    profile.nic.link_rate.value = 20.0;
    profile.validate().unwrap();
}

#[test]
fn free_numbers_are_listed_and_reached_by_name() {
    for name in Profile::NAMES {
        let mut profile = Profile::shipped(name).unwrap();
        let free: Vec<_> = profile.free().collect();
        assert!(!free.is_empty(), "{name} has nothing to fit");
        for (section, field, value, [low, high]) in free {
            assert!(low < high && (low..=high).contains(&value), "{name} {section}.{field}");
            profile.number_mut(section, field).unwrap().value = high;
        }
        profile.validate().unwrap();
        assert!(
            profile.number_mut("nic", "no_such_field").is_none()
                && profile.number_mut("gpu", "mtu").is_none()
        );
    }
}

#[test]
fn a_number_that_no_hardware_has_is_told_beside_what_a_shipped_profile_says() {
    let text =
        "extends: cx3\nname: m\ndescription: d\nnic:\n  mtu: {value: 1, unit: B, source: assumed, ref: x}\n";
    let error = Profile::parse(text, "here").unwrap_err();
    let (_, mistake) = error.mistake().expect("a place");
    assert_eq!(mistake.told("here"), "here:5:8: nic.mtu = 1 B: must be a whole number between 256 and 65536");
    assert_eq!(mistake.hint.as_deref(), Some("the shipped profile cx4-edr has 4096 B"));
    let bounds = "{value: 1, unit: ns, source: assumed, ref: x, free: [2, 3]}";
    let text = format!("extends: cx3\nname: m\ndescription: d\nnic:\n  pcie_read: {bounds}\n");
    let error = Profile::parse(&text, "here").unwrap_err();
    let (_, mistake) = error.mistake().expect("a place");
    assert!(mistake.hint.as_deref().is_some_and(|hint| hint.contains("without `free`")), "{mistake:?}");
}

#[test]
fn a_name_that_no_file_can_have_is_refused() {
    for name in ["''".to_owned(), "n".repeat(101)] {
        let error = refusal(&format!("extends: cx6\nname: {name}\ndescription: d\n"));
        assert!(error.starts_with("here:2:7: name: it has "), "{error}");
    }
}

#[test]
fn what_is_far_from_all_hardware_is_told_in_few_digits() {
    let text = "extends: cx6\nname: m\ndescription: d\nnic:\n  pass_latency: {value: 1e300, unit: ns, source: assumed, ref: x}\n";
    let error = refusal(text);
    assert!(error.contains("nic.pass_latency = 1e300 ns: is over 1e6 ns"), "{error}");
}
