use super::*;
use crate::plan::{PlanChoice, PlanFile, Preset};
use std::collections::BTreeSet;

fn caps(one_sided: bool, atomic_scope: AtomicScope) -> Caps {
    Caps {
        fabric: "some fabric".into(),
        one_sided,
        atomic_scope,
        failed_cas_stores: false,
        max_send_depth: 128,
        max_recv_depth: 128,
        max_inline: 64,
        max_rd_atomic: 16,
        ud_mtu: 4096,
        card: one_sided,
        virtual_time: false,
    }
}

fn every_caps() -> Vec<Caps> {
    vec![
        caps(true, AtomicScope::Global),
        caps(true, AtomicScope::Nic),
        caps(true, AtomicScope::None),
        caps(false, AtomicScope::None),
    ]
}

const READ_ONLY: Needs =
    Needs { protocol: "read-only", phases: &[Phase::Fetch, Phase::Validate], ..Needs::OCC };
const NO_FETCH: Needs =
    Needs { protocol: "no-fetch", phases: &[Phase::Lock, Phase::Install, Phase::Unlock], ..Needs::OCC };
const INSTALL_ONLY: Needs = Needs { protocol: "install-only", phases: &[Phase::Install], ..Needs::OCC };
const WIDE_LOCK: Needs = Needs { protocol: "wide-lock", lock_words: 2, ..Needs::OCC };
const WIDE_CHECK: Needs = Needs { protocol: "wide-check", check_words: 2, ..Needs::OCC };

fn plan(text: &str) -> Plan {
    Plan::parse(text, "test").unwrap()
}

/// Six phases, two-sided but for what `change` says.
fn two_sided_but(change: &[(Phase, Via)]) -> Plan {
    change.iter().fold(Plan::uniform(Via::TwoSided), |plan, &(phase, via)| plan.with(phase, via))
}

#[test]
fn each_refusal_names_phase_request_and_reason_and_offers_the_nearest_plan() {
    use Phase::*;
    use Via::*;
    let nic = caps(true, AtomicScope::Nic);
    let none = caps(true, AtomicScope::None);
    let tcp = caps(false, AtomicScope::None);
    let one = || Plan::uniform(OneSided);
    let cases: Vec<(Plan, &Caps, Needs, Vec<&str>, Plan)> = vec![
        (
            two_sided_but(&[(Fetch, OneSided)]),
            &tcp,
            Needs::OCC,
            vec!["fetch: one-sided asked for", "some fabric has no one-sided verbs"],
            two_sided_but(&[]),
        ),
        (
            two_sided_but(&[(Fetch, Hybrid)]),
            &tcp,
            Needs::OCC,
            vec!["fetch: hybrid asked for", "has no one-sided verbs"],
            two_sided_but(&[]),
        ),
        (
            two_sided_but(&[(Lock, OneSided), (Install, OneSided), (Unlock, OneSided)]),
            &none,
            Needs::OCC,
            vec!["lock: one-sided asked for", "has no atomics"],
            two_sided_but(&[(Install, OneSided), (Unlock, OneSided)]),
        ),
        (
            // The example of a spec: CAS to lock, the owner's CPU to commit. Locking two-sided is one step away,
            // committing and unlocking one-sided two.
            one().with(Install, TwoSided).with(Unlock, TwoSided),
            &nic,
            Needs::OCC,
            vec![
                "install: two-sided asked for",
                "unlock: two-sided asked for",
                "atomic only among themselves",
            ],
            one().with(Lock, TwoSided).with(Install, TwoSided).with(Unlock, TwoSided),
        ),
        (
            one().with(Install, TwoSided),
            &nic,
            Needs::OCC,
            vec!["install: two-sided asked for, but lock is one-sided"],
            one().with(Lock, TwoSided).with(Install, TwoSided),
        ),
        (
            plan("{install: one-sided, location_cache: false}"),
            &nic,
            INSTALL_ONLY,
            vec![
                "install: one-sided asked for",
                "nobody knows where the records are",
                "location cache is off",
            ],
            plan("{install: one-sided}"),
        ),
        (
            one(),
            &nic,
            WIDE_LOCK,
            vec!["lock: one-sided asked for", "wide-lock's rule needs 2 header words"],
            one().with(Lock, TwoSided).with(Install, TwoSided).with(Unlock, TwoSided),
        ),
        (
            one(),
            &nic,
            WIDE_CHECK,
            vec!["validate: one-sided asked for", "wide-check's rule needs 2 header words"],
            one().with(Validate, TwoSided),
        ),
        (
            plan("{fetch: one-sided, lock: two-sided, validate: one-sided}"),
            &nic,
            READ_ONLY,
            vec!["lock: two-sided asked for, but read-only never runs this phase"],
            plan("{fetch: one-sided, validate: one-sided}"),
        ),
        (
            plan("{fetch: one-sided}"),
            &nic,
            READ_ONLY,
            vec!["validate: not set, but read-only runs this phase"],
            plan("{fetch: one-sided, validate: two-sided}"),
        ),
        (
            two_sided_but(&[(Lock, Hybrid)]),
            &nic,
            Needs::OCC,
            vec!["lock: hybrid asked for", "only fetch"],
            two_sided_but(&[]),
        ),
        (
            Plan { location_cache: false, ..two_sided_but(&[(Fetch, Hybrid)]) },
            &nic,
            Needs::OCC,
            vec!["fetch: hybrid asked for", "the location cache it chooses by is off"],
            two_sided_but(&[(Fetch, Hybrid)]),
        ),
        (
            plan(
                "{fetch: two-sided, lock: two-sided, validate: two-sided, install: two-sided, unlock: two-sided, \
                 log: {via: one-sided, passive_ack: true}}",
            ),
            &nic,
            Needs::OCC,
            vec!["log: passive_ack asked for", "cannot go on without"],
            two_sided_but(&[(Log, OneSided)]),
        ),
        (
            Plan { coroutines: 0, ..two_sided_but(&[]) },
            &nic,
            Needs::OCC,
            vec!["coroutines: 0 asked for", "1 to 4096"],
            Plan { coroutines: 1, ..two_sided_but(&[]) },
        ),
        (
            Plan { coroutines: 1_000_000_000, ..two_sided_but(&[]) },
            &nic,
            Needs::OCC,
            vec!["coroutines: 1000000000 asked for"],
            Plan { coroutines: Plan::MAX_COROUTINES, ..two_sided_but(&[]) },
        ),
    ];
    let mut kinds = BTreeSet::new();
    for (plan, caps, needs, says, nearest) in cases {
        let refused = plan.check(caps, &needs).expect_err(&format!("{plan} was accepted"));
        let text = refused.to_string();
        for part in says {
            assert!(text.contains(part), "{plan}: {text:?} does not say {part:?}");
        }
        assert!(text.contains(&refused.nearest.unwrap().to_string()), "{text}");
        assert_eq!(refused.nearest, Some(nearest), "{plan}");
        assert!(refused.nearest.unwrap().check(caps, &needs).is_ok());
        for refusal in &refused.refusals {
            let named = refusal.phase().map_or("coroutines", Phase::name);
            assert!(refusal.to_string().starts_with(&format!("{named}: ")), "{refusal}");
            kinds.insert(format!("{refusal:?}").split([' ', '{']).next().unwrap().to_owned());
        }
    }
    assert_eq!(kinds.len(), 11, "a kind of refusal has no case: {kinds:?}");
}

#[test]
fn lock_words_may_be_shared_where_atomics_are_global_and_written_by_the_nic_where_the_cpu_locks() {
    let mixed = Plan::uniform(Via::OneSided).with(Phase::Install, Via::TwoSided);
    assert!(mixed.check(&caps(true, AtomicScope::Global), &Needs::OCC).is_ok());
    let written = Plan::uniform(Via::OneSided).with(Phase::Lock, Via::TwoSided);
    assert!(written.check(&caps(true, AtomicScope::Nic), &Needs::OCC).is_ok());
}

#[test]
fn a_fetch_or_the_reply_to_a_lock_tells_where_records_are() {
    let nic = caps(true, AtomicScope::Nic);
    let locked = plan("{lock: two-sided, install: one-sided, unlock: one-sided, location_cache: false}");
    assert!(locked.check(&nic, &NO_FETCH).is_ok());
    for via in [Via::OneSided, Via::TwoSided] {
        let fetched = Plan { location_cache: false, ..Plan::uniform(Via::OneSided).with(Phase::Fetch, via) };
        assert!(fetched.check(&nic, &Needs::OCC).is_ok());
    }
}

#[test]
fn local_locks_go_through_the_nic_only_where_its_atomics_stand_alone() {
    let owned =
        |scope| Preset::DrtmH.plan().check(&caps(true, scope), &Needs::OCC).unwrap().nic_owns_lock_words();
    assert!(owned(AtomicScope::Nic));
    assert!(!owned(AtomicScope::Global));
    let two = Preset::TwoSided.plan().check(&caps(true, AtomicScope::Nic), &Needs::OCC).unwrap();
    assert!(!two.nic_owns_lock_words());
}

#[test]
fn locks_are_freed_by_adding_where_rivals_cas_them_and_a_failed_cas_may_undo_a_write() {
    let adds = |preset: Preset, scope, failed_cas_stores| {
        let caps = Caps { failed_cas_stores, ..caps(true, scope) };
        preset.plan().check(&caps, &Needs::OCC).unwrap().adds_to_free()
    };
    assert!(adds(Preset::OneSided, AtomicScope::Nic, true));
    assert!(!adds(Preset::OneSided, AtomicScope::Nic, false));
    // CPUs ask for these.
    assert!(!adds(Preset::TwoSided, AtomicScope::Nic, true));
}

/// Every combination of primitives, cache and a flag per phase, valid or not.
fn all_combinations(needs: &Needs) -> Vec<Plan> {
    let mut plans = Vec::new();
    for code in 0..3usize.pow(6) * 2 {
        let mut plan = Plan { location_cache: code % 2 == 0, ..Plan::empty() };
        let mut rest = code / 2;
        for phase in Phase::ALL {
            let via = [Via::TwoSided, Via::OneSided, Via::Hybrid][rest % 3];
            rest /= 3;
            plan.set(phase, needs.runs(phase).then(|| Step::table2(phase, via)));
        }
        plans.push(plan);
    }
    plans
}

#[test]
fn the_nearest_plan_always_runs_and_a_plan_that_runs_is_its_own_nearest() {
    for caps in every_caps() {
        for needs in [Needs::OCC, READ_ONLY, WIDE_LOCK, WIDE_CHECK] {
            // Plans made for another protocol too: phases missing, phases too many.
            for plan in all_combinations(&Needs::OCC).into_iter().chain(all_combinations(&READ_ONLY)) {
                match plan.check(&caps, &needs) {
                    Ok(checked) => assert_eq!(Some(*checked.get()), plan.nearest(&caps, &needs)),
                    Err(refused) => {
                        assert!(refused.nearest.unwrap().check(&caps, &needs).is_ok(), "{refused}");
                        assert!(!refused.refusals.is_empty());
                    }
                }
            }
        }
    }
}

#[test]
fn the_space_holds_every_plan_that_runs_and_no_other() {
    for caps in every_caps() {
        for needs in [Needs::OCC, READ_ONLY, NO_FETCH, WIDE_LOCK, WIDE_CHECK] {
            let space: Vec<Plan> = Space::primitives(&caps, &needs).plans().collect();
            let unique: BTreeSet<Plan> = space.iter().copied().collect();
            assert_eq!(unique.len(), space.len(), "a plan twice");
            let expected: BTreeSet<Plan> = all_combinations(&needs)
                .into_iter()
                .filter(|plan| plan.refusals(&caps, &needs).is_empty())
                .collect();
            assert_eq!(unique, expected);
            assert!(!expected.is_empty());
        }
    }
}

#[test]
fn the_space_with_optimizations_covers_each_switch_and_runs_throughout() {
    let caps = caps(true, AtomicScope::Nic);
    let plans: Vec<Plan> = Space::all(&caps, &Needs::OCC, true).plans().collect();
    assert!(plans.iter().all(|plan| plan.check(&caps, &Needs::OCC).is_ok()));
    assert_eq!(plans.iter().collect::<BTreeSet<_>>().len(), plans.len());
    let vias = |plan: &Plan| (plan.location_cache, Phase::ALL.map(|p| plan.step(p).map(|s| s.via)));
    let all: BTreeSet<_> = plans.iter().map(vias).collect();
    let base: BTreeSet<_> = Space::primitives(&caps, &Needs::OCC).plans().map(|p| vias(&p)).collect();
    assert_eq!(all, base);
    for (batching, passive) in [(true, true), (true, false), (false, true), (false, false)] {
        let has = |plan: &Plan| {
            plan.steps().all(|(_, s)| s.doorbell_batching == batching && s.outstanding)
                && plan.install.is_some_and(|s| s.passive_ack == passive)
        };
        assert!(plans.iter().any(has), "doorbell batching {batching}, passive ACK {passive}");
    }
    assert!(Space::all(&caps, &Needs::OCC, false).plans().all(|p| p.fetch.is_some_and(|s| !s.outstanding)));
}

#[test]
fn presets_parse_bear_their_names_and_run_where_the_paper_ran_them() {
    let nic = caps(true, AtomicScope::Nic);
    for &preset in Preset::ALL {
        let file = preset.file().unwrap();
        assert_eq!(file.name, preset.name());
        assert_eq!(Preset::named(preset.name()), Some(preset));
        assert!(file.plan.check(&nic, &Needs::OCC).is_ok(), "{preset}");
        assert_eq!(preset.name().parse::<PlanChoice>(), Ok(PlanChoice::Preset(preset)));
    }
    // Table 4.
    let vias = |preset: Preset| {
        let plan = preset.plan();
        [Phase::Fetch, Phase::Lock, Phase::Validate, Phase::Log, Phase::Install]
            .map(|phase| plan.step(phase).unwrap().via)
    };
    use Via::*;
    assert_eq!(vias(Preset::Farm), [OneSided, TwoSided, OneSided, OneSided, TwoSided]);
    assert_eq!(vias(Preset::DrtmR), [OneSided; 5]);
    assert_eq!(vias(Preset::FasstOcc), [TwoSided; 5]);
    assert_eq!(vias(Preset::HybridFasst), [TwoSided, TwoSided, OneSided, OneSided, TwoSided]);
    assert_eq!(vias(Preset::DrtmH), [Hybrid, OneSided, OneSided, OneSided, OneSided]);
    assert!(Preset::DrtmH.plan().install.is_some_and(|s| s.passive_ack));
}

#[test]
fn without_atomics_drtm_h_locks_by_rpc() {
    let refused = Preset::DrtmH.plan().check(&caps(true, AtomicScope::None), &Needs::OCC).unwrap_err();
    assert_eq!(refused.nearest.unwrap().lock.map(|s| s.via), Some(Via::TwoSided));
    assert_eq!(refused.nearest.unwrap().fetch, Preset::DrtmH.plan().fetch);
}

#[test]
fn plans_survive_the_way_through_yaml_and_through_their_short_form() {
    for caps in every_caps() {
        for plan in Space::all(&caps, &Needs::OCC, true).plans() {
            assert_eq!(Plan::parse(&plan.to_string(), "short form").unwrap(), plan, "{plan}");
        }
    }
    for &preset in Preset::ALL {
        let mut file = preset.file().unwrap();
        file.prediction = Some(crate::plan::Prediction {
            profile: "cx4-edr".into(),
            profile_hash: "0123456789abcdef".into(),
            protocol: "occ".into(),
            workload: "smallbank".into(),
            nodes: 16,
            threads: 24,
            committed_per_s: 1.25e7,
            latency_mean_ns: 12_345.5,
            bottleneck: "CPU cores".into(),
            doubt: Some("made up".to_owned()),
        });
        let text = file.to_yaml().unwrap();
        assert_eq!(PlanFile::parse(&text, "written").unwrap(), file, "{text}");
    }
}

#[test]
fn a_primitive_alone_stands_for_the_optimizations_of_table_2() {
    let short = plan(
        "{fetch: two-sided, log: {via: one-sided}, install: {via: one-sided, doorbell_batching: false}}",
    );
    let fetch = short.fetch.unwrap();
    assert!(!fetch.outstanding && fetch.doorbell_batching && !fetch.passive_ack);
    assert!(short.log.is_some_and(|s| s.outstanding && !s.doorbell_batching));
    assert!(short.install.is_some_and(|s| s.passive_ack && !s.doorbell_batching));
    assert_eq!((short.coroutines, short.location_cache), (Plan::DEFAULT_COROUTINES, true));
}

/// DrTM+H's table 2, read-write transactions, cell by cell: outstanding requests, doorbell batching and passive ACK, each one-sided and
/// two-sided. Its V is two phases here, its C the install; coroutines are a plan's, not a phase's.
#[test]
fn optimizations_are_those_of_table_2() {
    let rows = [
        (Phase::Fetch, [[false, false], [false, true], [false, false]]),
        (Phase::Lock, [[true, true], [true, true], [false, false]]),
        (Phase::Validate, [[true, true], [true, true], [false, false]]),
        (Phase::Log, [[true, true], [false, true], [false, false]]),
        (Phase::Install, [[true, true], [true, true], [true, true]]),
        // Not in the table: what is posted is what commit posts.
        (Phase::Unlock, [[true, true], [true, true], [true, true]]),
    ];
    assert_eq!(rows.map(|(phase, _)| phase), Phase::ALL);
    for (phase, [outstanding, doorbell_batching, passive_ack]) in rows {
        for (cell, via) in [Via::OneSided, Via::TwoSided].into_iter().enumerate() {
            let wanted = Step {
                via,
                outstanding: outstanding[cell],
                doorbell_batching: doorbell_batching[cell],
                passive_ack: passive_ack[cell],
            };
            assert_eq!(Step::table2(phase, via), wanted, "{phase} {via}");
        }
    }
}

#[test]
fn bad_files_are_refused_with_line_and_column() {
    for (text, says) in [
        ("fetch: one-sided\nlokc: one-sided\n", vec!["lokc", "bad.plan.yaml:2:"]),
        ("fetch: one-sided\nfetch: two-sided\n", vec!["fetch", "bad.plan.yaml:2:"]),
        ("fetch: sideways\n", vec!["sideways", "bad.plan.yaml:1:"]),
        ("fetch:\n  via: one-sided\n  outstandin: true\n", vec!["outstandin", "bad.plan.yaml:3:"]),
        ("fetch:\n  via: one-sided\n  via: two-sided\n", vec!["via", "bad.plan.yaml:3:"]),
        ("fetch: {outstanding: true}\n", vec!["via", "bad.plan.yaml:1:"]),
        ("fetch: one-sided\ncoroutines: many\n", vec!["bad.plan.yaml:2:"]),
        ("fetch: one-sided\ncoroutines: -1\n", vec!["bad.plan.yaml:2:"]),
        ("[1, 2]\n", vec!["bad.plan.yaml:1:"]),
    ] {
        let error = Plan::parse(text, "bad.plan.yaml").unwrap_err().to_string();
        assert!(error.starts_with("bad.plan.yaml:"), "{error}");
        for part in says {
            assert!(error.contains(part), "{text:?}: {error:?} does not say {part:?}");
        }
    }
    let missing = PlanFile::parse("chosen_by: me\nwhy: y\nplan: {fetch: one-sided}\n", "f").unwrap_err();
    assert!(missing.to_string().contains("name"), "{missing}");
    // Who writes a plan by hand owes no reasons, and is not given empty ones when it is written again.
    let bare = PlanFile::parse("name: x\nplan: {fetch: one-sided}\n", "f").unwrap();
    assert!(!serde_yaml::to_string(&bare).unwrap().contains("why"));
    let absent = PlanFile::load(std::path::Path::new("/nonexistent/x.plan.yaml")).unwrap_err();
    assert!(absent.to_string().contains("/nonexistent/x.plan.yaml"), "{absent}");
}

#[test]
fn a_choice_is_a_name_a_file_or_a_map() {
    assert_eq!("tuned".parse(), Ok(PlanChoice::Tuned));
    assert_eq!("a/b.plan.yaml".parse(), Ok(PlanChoice::File("a/b.plan.yaml".into())));
    let unknown = "drtm-x".parse::<PlanChoice>().unwrap_err().to_string();
    assert!(unknown.contains("drtm-x") && unknown.contains("drtm-h"), "{unknown}");
    for text in ["tuned", "drtm-h", "{fetch: one-sided, validate: two-sided}"] {
        let choice: PlanChoice = serde_yaml::from_str(text).unwrap();
        let again: PlanChoice = serde_yaml::from_str(&serde_yaml::to_string(&choice).unwrap()).unwrap();
        assert_eq!(choice, again);
    }
    assert!(serde_yaml::from_str::<PlanChoice>("{fetsh: one-sided}").is_err());
}

/// Which phases are refused, and why, in a few words.
fn refused(text: &str, scope: AtomicScope, needs: &Needs) -> Vec<String> {
    let caps = caps(true, scope);
    let words = |r: &Refusal| match r {
        Refusal::ReadersShared { phase, .. } => format!("{phase}: readers"),
        Refusal::LeasesShared { .. } => "validate: leases".to_owned(),
        Refusal::ReadTimestampsShared { .. } => "validate: read timestamps".to_owned(),
        Refusal::LockWordsShared { phase, .. } => format!("{phase}: lock words"),
        Refusal::NeverRun { phase, .. } => format!("{phase}: never run"),
        other => other.to_string(),
    };
    plan(text).refusals(&caps, needs).iter().map(words).collect()
}

#[test]
fn two_phase_locking_frees_shared_locks_as_it_took_them() {
    let mixed = "{lock: two-sided, log: one-sided, install: one-sided, unlock: one-sided}";
    assert_eq!(
        refused(mixed, AtomicScope::Nic, &Needs::NOWAIT),
        ["install: readers", "unlock: readers"],
        "a CPU's and a NIC's compare-and-swap of one count"
    );
    assert!(refused(mixed, AtomicScope::Global, &Needs::WAITDIE).is_empty());
    assert!(refused(mixed, AtomicScope::Nic, &Needs::NOWAIT_EXCLUSIVE).is_empty(), "one holder, one WRITE");
    let other = "{lock: one-sided, log: two-sided, install: two-sided, unlock: one-sided}";
    assert_eq!(refused(other, AtomicScope::Nic, &Needs::WAITDIE), ["install: lock words"]);
    let fetching =
        "{fetch: two-sided, lock: two-sided, log: two-sided, install: two-sided, unlock: two-sided}";
    assert_eq!(refused(fetching, AtomicScope::Nic, &Needs::NOWAIT), ["fetch: never run"]);
    assert!(
        plan(fetching)
            .restricted_to(&Needs::NOWAIT)
            .check(&caps(true, AtomicScope::Nic), &Needs::NOWAIT)
            .is_ok()
    );
}

#[test]
fn a_one_sided_lock_without_a_fetch_finds_its_records_itself() {
    let cold =
        "{lock: one-sided, log: one-sided, install: one-sided, unlock: one-sided, location_cache: false}";
    assert!(refused(cold, AtomicScope::Nic, &Needs::NOWAIT).is_empty());
}

#[test]
fn leases_and_read_timestamps_are_changed_from_one_side() {
    let text = |fetch: &str, validate: &str, lock: &str| {
        format!(
            "{{fetch: {fetch}, lock: {lock}, validate: {validate}, log: two-sided, install: one-sided, unlock: one-sided}}"
        )
    };
    let (one, two) = ("one-sided", "two-sided");
    for (validate, lock) in [(one, two), (two, one)] {
        let mixed = text(one, validate, lock);
        assert_eq!(refused(&mixed, AtomicScope::Nic, &Needs::SUNDIAL), ["validate: leases"]);
        assert!(refused(&mixed, AtomicScope::Global, &Needs::SUNDIAL).is_empty());
        assert!(refused(&mixed, AtomicScope::Nic, &Needs::MVCC).is_empty(), "lock and rts are two words");
        assert!(refused(&mixed, AtomicScope::Nic, &Needs::OCC).is_empty());
    }
    let fetched = text(two, one, one);
    assert_eq!(refused(&fetched, AtomicScope::Nic, &Needs::MVCC), ["validate: read timestamps"]);
    assert!(refused(&text(two, two, one), AtomicScope::Nic, &Needs::MVCC).is_empty());
}

#[test]
fn letters_need_writes_and_neither_atomics_nor_locations() {
    let calvin = |text: &str, scope| refused(text, scope, &Needs::CALVIN);
    let both = |fetch: &str, lock: &str| format!("{{fetch: {fetch}, lock: {lock}, location_cache: false}}");
    for scope in [AtomicScope::Global, AtomicScope::Nic, AtomicScope::None] {
        for fetch in ["one-sided", "two-sided"] {
            for lock in ["one-sided", "two-sided"] {
                assert!(calvin(&both(fetch, lock), scope).is_empty(), "{fetch} {lock}");
            }
        }
    }
    let words = |text: &str| {
        let caps = caps(false, AtomicScope::None);
        plan(text).check(&caps, &Needs::CALVIN).unwrap_err()
    };
    let cached = words("{fetch: two-sided, lock: two-sided}");
    assert!(cached.to_string().contains("every node serves its own records"), "{cached}");
    assert_eq!(cached.nearest, Some(plan(&both("two-sided", "two-sided"))));
    let hybrid = words(&both("hybrid", "two-sided"));
    assert!(hybrid.to_string().contains("values are sent unasked"), "{hybrid}");
    let passive =
        words("{fetch: {via: two-sided, passive_ack: true}, lock: two-sided, location_cache: false}");
    assert!(passive.to_string().contains("fetch: passive_ack asked for"), "{passive}");
    let logged = words("{fetch: two-sided, lock: two-sided, log: two-sided, location_cache: false}");
    assert!(logged.to_string().contains("calvin never runs this phase"), "{logged}");
    let one_sided = words(&both("two-sided", "one-sided"));
    assert!(one_sided.to_string().contains("lock: one-sided asked for"), "{one_sided}");
    assert_eq!(one_sided.nearest, Some(plan(&both("two-sided", "two-sided"))));
}

#[test]
fn every_protocol_has_hybrids_and_both_pure_plans() {
    let all = [
        &Needs::NOWAIT,
        &Needs::WAITDIE,
        &Needs::SUNDIAL,
        &Needs::MVCC,
        &Needs::NOWAIT_EXCLUSIVE,
        &Needs::CALVIN,
    ];
    for needs in all {
        let plans: Vec<Plan> = Space::primitives(&caps(true, AtomicScope::Nic), needs).plans().collect();
        for via in [Via::OneSided, Via::TwoSided] {
            assert!(plans.contains(&Plan::uniform(via).restricted_to(needs)), "{} {via}", needs.protocol);
        }
        let hybrid = |p: &Plan| {
            p.steps().any(|s| s.1.via == Via::OneSided) && p.steps().any(|s| s.1.via == Via::TwoSided)
        };
        assert!(plans.iter().filter(|p| hybrid(p)).count() >= 2, "{}", needs.protocol);
    }
}

/// Records of 1000 B under datagrams of 1000 B: whatever carries a record by message is refused, and nothing else.
#[test]
fn long_records_travel_one_sided_only() {
    use Phase::*;
    let short = |caps| Caps { ud_mtu: 1000, ..caps };
    let global = short(caps(true, AtomicScope::Global));
    for base in [Needs::OCC, Needs::NOWAIT, Needs::SUNDIAL, Needs::MVCC] {
        let needs = base.with_records(1000);
        let one = Plan::uniform(Via::OneSided).restricted_to(&needs);
        assert!(one.check(&global, &needs).is_ok(), "{}", needs.protocol);
        for phase in Phase::ALL.into_iter().filter(|&phase| needs.runs(phase)) {
            let plan = one.with(phase, Via::TwoSided);
            let carries = matches!(phase, Fetch | Lock | Install);
            assert!(plan.check(&global, &base).is_ok());
            match plan.check(&global, &needs) {
                Ok(_) => assert!(!carries, "{}: {phase}", needs.protocol),
                Err(refused) => {
                    let text = refused.to_string();
                    assert!(
                        carries && text.contains("a record of 1000 B") && text.contains("takes 1000 B"),
                        "{text}"
                    );
                    assert_eq!(refused.nearest, Some(one));
                }
            }
        }
        let tcp = short(caps(false, AtomicScope::None));
        let refused = Plan::uniform(Via::TwoSided).restricted_to(&needs).check(&tcp, &needs).unwrap_err();
        assert!(refused.to_string().ends_with("No plan would run"), "{refused}");
        assert!(Space::all(&global, &needs, true).plans().all(|plan| plan.check(&global, &needs).is_ok()));
        assert!(Space::all(&global, &needs, true).plans().count() > 0);
    }
}

/// The longest record that a message takes is taken, and the next longer one is not.
#[test]
fn the_longest_record_that_fits_is_not_refused() {
    let global = Caps { ud_mtu: 984, ..caps(true, AtomicScope::Global) };
    // Message header 24; reply to a fetch: outcome, first word, and a version that stands apart; install: name and version.
    for (base, fits) in [(Needs::OCC, 936), (Needs::NOWAIT, 936), (Needs::SUNDIAL, 936), (Needs::MVCC, 936)] {
        let plan = Plan::uniform(Via::TwoSided).restricted_to(&base);
        let with = |record_bytes| base.with_records(record_bytes);
        assert!(plan.check(&global, &with(fits)).is_ok(), "{}", base.protocol);
        assert!(plan.check(&global, &with(fits + 8)).is_err(), "{}", base.protocol);
        // Endpoints of the plan take just that, where it carries records by messages.
        assert_eq!(plan.longest_message(&with(fits)), 984, "{}", base.protocol);
        let one_sided = Plan::uniform(Via::OneSided).restricted_to(&base);
        assert_eq!(one_sided.longest_message(&with(fits)), 0);
    }
}
