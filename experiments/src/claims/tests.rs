use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use primitives::profile::{Profile, Source};

use super::*;

fn documents() -> Vec<Document> {
    FILES.map(|(name, text)| Document { name: name.to_owned(), text: text.to_owned() }).to_vec()
}

fn refused(text: &str) -> String {
    let document = Document { name: "c.yaml".into(), text: text.into() };
    Claims::parse(&[document]).unwrap_err().message().to_owned()
}

#[test]
fn every_claim_of_the_five_papers_is_there() {
    let claims = load().unwrap();
    assert_eq!(claims.iter().count(), 404);
    let of = |paper: &str| claims.iter().filter(|c| c.paper == paper).count();
    let papers = ["rcc-vldb", "drtmh-osdi18", "2pl-2pc-vldb19", "ramp-rdma", "namdb-vldb17"];
    assert_eq!(papers.map(of), [129, 136, 75, 17, 47]);
    assert_eq!(claims.iter().filter(|c| c.split == Split::Calibrate).count(), 71);
    assert_eq!(claims.iter().filter(|c| c.external).count(), 32);
    assert!(claims.iter().all(|c| (c.kind == Kind::Calibration) == (c.split == Split::Calibrate)));
}

#[test]
fn contradictions_are_mutual() {
    let claims = load().unwrap();
    let pairs = claims.iter().flat_map(|c| c.contradicts.iter().map(move |other| (c, other)));
    for (claim, other) in pairs {
        let other = claims.get(other).unwrap();
        assert!(other.contradicts.contains(&claim.id), "{} and {}", claim.id, other.id);
    }
}

#[test]
fn families_are_figures() {
    let claims = load().unwrap();
    let family = |id: &str| claims.get(id).unwrap().family();
    assert_eq!((family("DRH-C07").as_str(), family("DRH-C06").as_str()), ("fig5", "fig5"));
    assert_eq!((family("DRH-T1-RC").as_str(), family("DRH-C09").as_str()), ("table 1", "s1"));
}

/// Calibration sees the same whatever the hold-out claims say: all their numbers are replaced, and some are gone.
#[test]
fn calibration_does_not_depend_on_any_hold_out_claim() {
    let mut poisoned = documents();
    for document in &mut poisoned {
        let (head, claims) = document.text.split_once("\nclaims:\n").unwrap();
        let mut kept = format!("{head}\nclaims:\n");
        for (number, claim) in claims.split("  - id: ").skip(1).enumerate() {
            if claim.contains("split: calibrate") {
                kept.push_str(&format!("  - id: {claim}"));
            } else if number % 3 != 0 || claim.contains("contradicts:") {
                let bound =
                    |l: &&str| ["answered_by:", "reason:"].iter().any(|key| l.trim_start().starts_with(key));
                let lines = claim.lines().filter(|line| !bound(line));
                for (i, line) in lines.enumerate() {
                    // What follows a removed binding is its body.
                    if line.starts_with("      ") {
                        continue;
                    }
                    let value = line.trim_start().starts_with("value:");
                    let line = if value { "    value: {form: point, num: 123456789}" } else { line };
                    kept.push_str(&format!("{}{line}\n", if i == 0 { "  - id: " } else { "" }));
                }
            }
        }
        document.text = kept;
    }
    let poisoned = Claims::parse(&poisoned).unwrap();
    assert!(poisoned.iter().filter(|c| c.value.num == Some(123456789.0)).count() > 150);
    let seen = poisoned.into_calibrate();
    assert_eq!(seen, calibrate().unwrap());
    assert_eq!(seen.iter().count(), 71);
    // And so it is fitted to the same.
    let profile = Profile::shipped("cx4-edr").unwrap();
    let aims = |view| {
        let targets = crate::calibrate::Targets::of_claims(&profile, view).unwrap();
        (targets.origin.clone(), format!("{:?}", targets.list))
    };
    assert_eq!(aims(seen), aims(calibrate().unwrap()));
}

#[test]
fn calibration_cannot_ask_for_a_hold_out_claim() {
    let view = calibrate().unwrap();
    assert!(view.get("DRH-C03").is_none() && view.get("DRH-P02").is_some());
    let error = view
        .answers(&["DRH-P02", "DRH-C03"], &answers::Profiles::shipped(), 1, &AtomicBool::new(false))
        .unwrap_err();
    assert!(error.message().contains("DRH-C03"), "{}", error.message());
    assert!(view.iter().all(|c| c.claim().split == Split::Calibrate));
}

/// What others than the judges may name of this module: the view, what hangs on it, and experiments without their published values.
const OPEN: &[&str] = &[
    "calibrate",
    "Calibrate",
    "CalibrateClaim",
    "Answer",
    "Form",
    "Number",
    "Profiles",
    "answers::Profiles",
    "library::experiment",
    "library::is_primitive",
    "library::points_of",
    "self",
];

/// Every name that a text takes from the module `claims`, by path or in a list.
fn taken(text: &str) -> Vec<String> {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join(" ");
    let name = |text: &str| -> String {
        text.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':')).collect()
    };
    code.split("claims::")
        .skip(1)
        .flat_map(|after| match after.strip_prefix('{') {
            Some(list) => {
                list.split('}').next().unwrap_or(list).split(',').map(|n| n.trim().to_owned()).collect()
            }
            None => vec![name(after)],
        })
        .collect()
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            sources(&entry.path(), found);
        } else if entry.path().extension().is_some_and(|e| e == "rs") {
            found.push(entry.path());
        }
    }
}

/// Whoever uses the claims names the module; these may see hold-out claims because they judge, or draw what is published beside
/// what was measured.
const JUDGES: [&str; 3] = ["/claims/", "/commands/reproduce", "/commands/experiment.rs"];

/// Who does not judge names nothing of this module but what is open to all, and reads none of its files.
#[test]
fn calibration_code_uses_the_view_alone() {
    let mut files = Vec::new();
    sources(&folder().join("src"), &mut files);
    assert!(files.len() > 20, "the sources were found");
    let mut uses = 0;
    for file in files {
        let name = below(&file);
        if JUDGES.iter().any(|judge| name.contains(judge)) {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        for taken in taken(&text) {
            assert!(OPEN.contains(&taken.as_str()), "{name} takes `{taken}` of the claims");
            uses += 1;
        }
        let embeds = text.contains("include_str!") && text.contains("claims/");
        assert!(!embeds, "{name} has the text of claims in it");
    }
    assert!(uses > 5, "calibration was found to use the view");
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Where a file lies below this crate's folder: what lies above may have any name.
fn below(file: &Path) -> String {
    file.strip_prefix(folder()).unwrap_or(file).display().to_string()
}

/// The code of a file, without comments and without its tests.
fn code(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let text = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
    text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// The paths that a text names behind `prefix`, lists taken apart.
fn paths(code: &str, prefix: &str) -> Vec<String> {
    let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
    let mut found = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        if code[..at].ends_with(word) {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        let head: String = rest.chars().take_while(|c| word(*c)).collect();
        let Some(list) = rest[head.len()..].strip_prefix('{') else {
            found.push(head);
            continue;
        };
        let (mut depth, mut item) = (0, String::new());
        for c in list.chars() {
            match c {
                '}' if depth == 0 => break,
                ',' if depth == 0 => found.push(format!("{head}{}", std::mem::take(&mut item).trim())),
                _ => {
                    depth += i32::from(c == '{') - i32::from(c == '}');
                    item.push(c);
                }
            }
        }
        found.push(format!("{head}{}", item.trim()));
    }
    found
}

/// The files of the longest module that a path begins with, below `base`. What [`crate::commands`] itself holds is no command.
fn module(base: &Path, path: &str) -> Vec<PathBuf> {
    let names: Vec<&str> = path.split("::").filter(|name| !name.is_empty()).collect();
    for length in (1..=names.len()).rev() {
        let at = names[..length].iter().fold(base.to_owned(), |at, name| at.join(name));
        let mut files = Vec::new();
        if at.is_dir() && !at.ends_with("commands") {
            sources(&at, &mut files);
        }
        files.extend(Some(at.with_extension("rs")).filter(|file| file.is_file()));
        if !files.is_empty() {
            return files;
        }
    }
    Vec::new()
}

/// What calibration runs: its own files, those that answer claims for it, and all of this crate that they name, and so on.
fn reached() -> BTreeSet<PathBuf> {
    let src = folder().join("src");
    let mut next = vec![src.join("commands/calibrate.rs")];
    sources(&src.join("calibrate"), &mut next);
    next.extend(
        ["answers", "binding", "evaluate", "library"].map(|name| src.join(format!("claims/{name}.rs"))),
    );
    let mut seen = BTreeSet::new();
    while let Some(file) = next.pop() {
        if !seen.insert(file.clone()) {
            continue;
        }
        let code = code(&file);
        let named = paths(&code, "crate::").into_iter().flat_map(|path| module(&src, &path));
        let near = file.parent().unwrap_or(&src).to_owned();
        let beside = paths(&code, "super::").into_iter().flat_map(|path| module(&near, &path));
        // The claims themselves are told apart by their view: who may name what of them is the test above.
        next.extend(named.chain(beside).filter(|file| !file.starts_with(src.join("claims"))));
    }
    seen
}

/// Nothing that calibration runs is a judge, draws published numbers, or knows of the papers' files or of a claim that is held out;
/// nor do the crates below, whose profiles name no such claim as a source.
#[test]
fn no_code_or_file_that_calibration_reaches_has_a_hold_out_claim() {
    let claims = load().unwrap();
    let held_out: BTreeSet<&str> =
        claims.iter().filter(|c| c.split == Split::HoldOut).map(|c| c.id.as_str()).collect();
    let clean = |file: &Path, text: &str| {
        let name = file.display();
        let told = text.split(|c: char| !(c.is_alphanumeric() || "-_".contains(c)));
        let told = told.map(|word| word.trim_matches('-')).find(|word| held_out.contains(word));
        assert_eq!(told, None, "{name} knows of a claim that is held out");
        let papers =
            ["results.yaml", "drtmh-osdi18.yaml", "rcc-vldb.yaml", "namdb-vldb17.yaml", "ramp-rdma.yaml"];
        for papers in papers.into_iter().chain(["2pl-2pc-vldb19.yaml", "claims/"]) {
            assert!(!text.contains(papers), "{name} names {papers}");
        }
    };
    let ours = reached();
    let has = |end: &str| ours.iter().any(|file| file.ends_with(end));
    assert!(
        has("commands/tune.rs") && has("primitive.rs") && has("fabrics.rs") && has("spec/run.rs"),
        "{ours:?}"
    );
    for file in &ours {
        let name = below(file);
        let judge = JUDGES[1..].iter().any(|judge| name.contains(judge));
        assert!(!judge, "calibration reaches {name}");
        if name.contains("/claims/") {
            continue;
        }
        let code = code(file);
        assert!(!code.contains(".published"), "{name} reads what is published");
        clean(file, &code);
    }
    let mut below = Vec::new();
    for crate_ in ["primitives", "phases", "engine"] {
        sources(&folder().join("..").join(crate_).join("src"), &mut below);
    }
    assert!(below.len() > 100);
    below.iter().for_each(|file| clean(file, &code(file)));
    // The files that they take in: experiments, and profiles with their comments.
    let mut taken = 0;
    for (folder, ending) in [(folder(), ".yaml"), (folder().join("../primitives/profiles"), ".profile.yaml")]
    {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.to_string_lossy().ends_with(ending) {
                let text = std::fs::read_to_string(&entry).unwrap();
                let kept: Vec<&str> =
                    text.lines().filter(|line| ending != ".yaml" || !line.starts_with('#')).collect();
                clean(&entry, &kept.join("\n").replace("experiments/claims,", ""));
                taken += 1;
            }
        }
    }
    assert!(taken > 50);
}

#[test]
fn what_code_reaches_is_found() {
    let text =
        "use crate::{a, b::{c, d}};\nlet x = crate::commands::run::f();\nuse supercrate::z;\nuse super::e;";
    assert_eq!(paths(text, "crate::"), ["a", "b::{c, d}", "commands::run::f"]);
    assert_eq!(paths(text, "super::"), ["e"]);
    let src = folder().join("src");
    assert_eq!(module(&src, "commands::run::resolve"), [src.join("commands/run.rs")]);
    assert!(module(&src, "spec::Point").contains(&src.join("spec/grid.rs")));
    assert!(module(&src, "commands::Context").is_empty());
}

/// A fact outside of the papers: `primitives/profiles/facts.yaml`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Fact {
    id: String,
    card: String,
    cpu: Option<String>,
    #[allow(dead_code)]
    what: String,
    #[serde(rename = "where")]
    #[allow(dead_code)]
    place: String,
}

/// `calibrated` stands beside a number if and only if its reference names what it was fitted to, and that is about this very card
/// (of a core's numbers, this processor) and may set numbers. What was taken over from another card is assumed.
#[test]
fn what_is_called_calibrated_names_what_it_was_fitted_to_on_this_card() {
    #[derive(serde::Deserialize)]
    struct Facts {
        facts: Vec<Fact>,
    }
    let text = include_str!("../../../primitives/profiles/facts.yaml");
    let facts: Facts = crate::yaml::from_str("facts", text).unwrap();
    let claims = load().unwrap();
    // Testbeds of claims that may set numbers, with the card and the processor of the profile that means them.
    let testbeds = [
        ("drtmh-cx4", "ConnectX-4 EDR", "Intel Xeon E5-2650 v4"),
        ("rcc-edr", "ConnectX-4 EDR", "Intel Xeon E5-2670 v3"),
    ];
    let mut named = 0;
    for name in Profile::NAMES {
        let profile = Profile::shipped(name).unwrap();
        for (section, number, quantity) in profile.quantities() {
            if quantity.source != Source::Calibrated {
                continue;
            }
            let of_cpu = section == "cpu";
            let asked = |card: &str, cpu: Option<&str>| {
                if of_cpu { cpu == Some(profile.cpu.model.as_str()) } else { card == profile.nic.card }
            };
            let at = format!("{name}: {section}.{number}");
            let reference = quantity.reference.replace('\n', " ");
            if reference.contains(&format!("characterization of {}", profile.nic.card)) {
                named += 1;
                continue;
            }
            let words = reference.split(|c: char| !(c.is_alphanumeric() || "-_".contains(c)));
            let mut fitted = 0;
            for word in words {
                if let Some(claim) = claims.get(word) {
                    assert_eq!(claim.split, Split::Calibrate, "{at} was fitted to {word}");
                    let of = testbeds.iter().find(|(testbed, ..)| *testbed == claim.testbed);
                    let about = of.is_some_and(|(_, card, cpu)| asked(card, Some(cpu)));
                    assert!(about, "{at}: {word} is about {}", claim.testbed);
                    fitted += 1;
                } else if let Some(fact) = facts.facts.iter().find(|fact| fact.id == word) {
                    assert!(asked(&fact.card, fact.cpu.as_deref()), "{at}: {word} is about {}", fact.card);
                    fitted += 1;
                }
            }
            assert!(fitted > 0, "{at} is called calibrated and names nothing: {reference}");
            named += 1;
        }
    }
    assert!(named > 40, "{named}");
}

/// What a claim itself set is counted apart, and holds.
#[test]
fn what_restates_a_claim_is_told_apart() {
    let claims = load().unwrap();
    let restated = |c: &&Claim| c.answered_by.as_ref().is_some_and(|b| b.restates);
    let ids: Vec<&str> = claims.iter().filter(restated).map(|c| c.id.as_str()).collect();
    let profiles = ["DRH-P07", "DRH-P08", "DRH-P09", "DRH-P10", "DRH-P11"];
    let tables = [
        "DRH-T1-RC",
        "DRH-T1-UC",
        "DRH-T1-UD",
        "DRH-T2-RW-E",
        "DRH-T2-RW-V",
        "DRH-T2-RW-L",
        "DRH-T2-RW-C",
        "DRH-T2-RO-R",
        "DRH-T2-RO-V",
        "DRH-T4-FaRM",
        "DRH-T4-DrTM_R",
        "DRH-T4-FaSST",
        "DRH-T4-DrTM_H",
    ];
    assert_eq!(ids, [&profiles[..], &tables[..]].concat());
    // A row of a configuration table is stated, and nothing else is.
    let stated = |c: &&Claim| c.answered_by.as_ref().is_some_and(|b| b.states.is_some());
    let rows: Vec<&str> = claims.iter().filter(stated).map(|c| c.id.as_str()).collect();
    assert_eq!(rows, tables);
    assert!(claims.iter().filter(stated).all(|c| c.value.form == Form::Config));
    // A number of a profile answers nothing else.
    let reads_profile = |c: &&Claim| c.answered_by.as_ref().is_some_and(|b| !b.parameters().is_empty());
    assert!(claims.iter().filter(reads_profile).all(|c| restated(&c)));
    let answer = answers::answer("DRH-P10", &answers::Profiles::shipped()).unwrap().unwrap();
    let entry = scoreboard::Entry::new(claims.get("DRH-P10").unwrap(), Ok(answer));
    assert_eq!(entry.verdict, verdict::Verdict::Restated);
    let counts = scoreboard::count(&[entry], |_| true);
    assert_eq!((counts.checked, counts.passed, counts.restated, counts.median_error), (0, 0, 1, None));
}

/// Every claim is either answered or says why not, in words of its own for what could be done.
#[test]
fn what_nothing_answers_says_why() {
    let claims = load().unwrap();
    for claim in claims.iter() {
        let (bound, open) = (claim.answered_by.is_some(), &claim.not_yet);
        assert_eq!(bound, open.is_none(), "{}: either `answered_by` or `not_yet`", claim.id);
        let Some(open) = open else { continue };
        let sentence = open.why.len() > 30 && open.why.ends_with('.');
        assert!(sentence, "{}: `{}` is no sentence", claim.id, open.why);
    }
    let listed: Vec<&str> =
        by_obstacle(claims.iter()).iter().flat_map(|(_, open)| open).map(|(c, _)| c.id.as_str()).collect();
    let unbound = claims.iter().filter(|c| c.answered_by.is_none()).count();
    assert_eq!(listed.len(), unbound, "each is listed once");
    // Nobody answers for another system.
    let external = claims.iter().filter(|c| c.external);
    for claim in external {
        assert_eq!(claim.not_yet.as_ref().map(|o| o.kind), Some(Obstacle::OtherSystem), "{}", claim.id);
    }
}

/// What READMEs count, they count as the files do.
#[test]
fn readmes_count_claims_as_the_files_do() {
    let claims = load().unwrap();
    let count = |belongs: &dyn Fn(&Claim) -> bool| claims.iter().filter(|c| belongs(c)).count();
    let bound = |c: &Claim| c.answered_by.is_some();
    let calibrate = |c: &Claim| c.split == Split::Calibrate;
    let (of, all) = (count(&bound), claims.iter().count());
    let restated = count(&|c| c.answered_by.as_ref().is_some_and(|b| b.restates));
    let (may_set, theirs) = (count(&calibrate), count(&|c| calibrate(c) && bound(c)));
    let open = may_set - theirs;
    let root = include_str!("../../../README.md");
    let here = include_str!("../../claims/README.md");
    assert!(root.contains(&format!("({of} of {all} claims so far")), "{of} of {all}");
    assert!(here.contains(&format!("Of {all} claims {of} are bound")), "{of} of {all}");
    let told = format!(
        "Of {may_set} calibrate claims {theirs} are bound, {restated} of which restate what was set from them; {open} are not yet"
    );
    assert!(root.contains(&told) && here.contains(&told), "{told}");
    for (kind, of_kind) in by_obstacle(claims.iter()) {
        let hold_out = of_kind.iter().filter(|(c, _)| !calibrate(c)).count();
        let row = format!("| {} | {} | {} | {hold_out} |", kind.name(), kind.meaning(), of_kind.len());
        assert!(here.contains(&row), "{row}");
    }
    assert!(root.contains(&format!("{} are [listed with why not]", all - of)), "{}", all - of);
    for paper in ["drtmh-osdi18", "rcc-vldb"] {
        let judged = count(&|c| c.paper == paper && !calibrate(c) && bound(c));
        assert!(root.contains(&format!("of {judged} |")), "{paper}: {judged} hold-out claims are bound");
    }
}

/// Table 3's handlers by what the model charges for them.
#[test]
fn handlers_are_answered_in_cycles() {
    let got = |id: &str| match answers::answer(id, &answers::Profiles::shipped()).unwrap() {
        Some(Answer::Number { value, .. }) => value,
        other => panic!("{other:?}"),
    };
    // Dispatch, a look and 16 B that are copied: 10 + 73 + 1.6 ns at 2.2 GHz, and a little more.
    let commit = got("DRH-T3-commit-smallbank-time");
    assert!((180.0..210.0).contains(&commit), "{commit}");
    assert!(got("DRH-T3-execution-smallbank-time") > 1.5 * commit, "two looks");
    assert!(got("DRH-T3-logging-tpcc-no-time") > got("DRH-T3-logging-smallbank-time"), "copies");
}

#[test]
fn other_doors_would_be_seen() {
    for (text, door) in [
        ("use crate::claims::{self, load};", "load"),
        ("let all = crate::claims::load()?;", "load"),
        ("let v = claims::library::published(name);", "library::published"),
        ("use crate::claims::Claims as Seen;", "Claims"),
        ("use crate::claims::*;", ""),
    ] {
        let taken = taken(text);
        assert!(taken.iter().any(|t| t == door && !OPEN.contains(&t.as_str())), "{text}: {taken:?}");
    }
}

#[test]
fn mistakes_have_line_and_column() {
    let good = "paper: p\ntitle: t\nclaims:\n  - id: A\n    where: s1\n    testbed: b\n    workload: w\n    metric: m\n    unit: x\n    value: {form: point, num: 3}\n    kind: ratio\n    split: hold-out\n    note: n\n";
    let document = Document { name: "c.yaml".into(), text: good.into() };
    assert_eq!(Claims::parse(&[document]).unwrap().iter().count(), 1);
    for (from, to, says) in [
        ("where: s1", "were: s1", "c.yaml:5:5: unknown field `were`"),
        ("num: 3", "nun: 3", "c.yaml:10:26: unknown field `nun`"),
        ("form: point, num: 3", "form: point, lo: 3", "c.yaml:10:12: the parts of this value do not fit"),
        ("form: point, num: 3", "form: range, lo: 3, hi: 2", "from 3 to 2 is empty"),
        ("split: hold-out", "split: holdout", "c.yaml:12:12: claims.0.split: unknown variant"),
        ("note: n\n", "note: n\n    contradicts: [B]\n", "B, which is no claim"),
        ("note: n\n", "note: n\n    setup: {nods: 3}\n", "unknown field `nods`"),
        (
            "note: n\n",
            "note: n\n    answered_by: {experiment: nothing, number: {value: {}}}\n",
            "no experiment `nothing`",
        ),
        (
            "note: n\n",
            "note: n\n    answered_by: {experiment: rates-per-machine, number: {value: {verb: raed}}}\n",
            "c.yaml:14:18: A: no point of experiment rates-per-machine has verb",
        ),
        (
            "note: n\n",
            "note: n\n    answered_by: {experiment: rates-per-machine, y: speed, number: {value: {verb: read}}}\n",
            "no column speed",
        ),
        (
            "note: n\n",
            "note: n\n    answered_by: {experiment: rates-per-machine, number: {valu: {verb: read}}}\n",
            "unknown variant `valu`",
        ),
        (
            "note: n\n",
            "note: n\n    answered_by: {experiment: rates-per-machine}\n",
            "either `number` or `holds`",
        ),
        (
            "note: n\n",
            "note: n\n    external: true\n    answered_by: {experiment: rates-per-machine, number: {value: {verb: read}}}\n",
            "external",
        ),
        ("note: n\n", "note: n\n    reason: because\n", "c.yaml:14:13: A: nothing answers it"),
        (
            "note: n\n",
            "note: n\n    not_yet: {kind: later, why: w}\n",
            "c.yaml:14:21: claims.0.not_yet.kind: unknown variant `later`",
        ),
        ("note: n\n", "note: n\n    not_yet: {kind: to-do, why: ' '}\n", "A: an empty `why` is none"),
        (
            "note: n\n",
            "note: n\n    external: true\n    not_yet: {kind: to-do, why: w}\n",
            "A: what is `external` is of another system",
        ),
        (
            "note: n\n",
            "note: n\n    not_yet: {kind: to-do, why: w}\n    answered_by: {experiment: rates-per-machine, number: {value: {verb: read, payload: 8}}}\n",
            "A: something answers it",
        ),
        (
            "note: n\n",
            "note: n\n    answered_by: {states: {transport: rc}, restates: true}\n",
            "such a row has a cell send_recv",
        ),
        (
            "note: n\n",
            "note: n\n    answered_by: {states: {transport: rc}}\n",
            "`states` stands alone, with `restates: true`",
        ),
        (
            "note: n\n",
            "note: n\n    reason: ' '\n    answered_by: {experiment: rates-per-machine, number: {value: {verb: read, payload: 8}}}\n",
            "c.yaml:14:13: A: an empty `reason` is none",
        ),
    ] {
        assert!(good.contains(from));
        let got = refused(&good.replace(from, to));
        assert!(got.contains(says), "{to}\n  wanted {says}\n  got    {got}");
    }
    let twice = good.to_owned() + good.split_once("claims:\n").unwrap().1;
    assert!(refused(&twice).contains("c.yaml:14:9: the claim A is there twice"), "{}", refused(&twice));
}
