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
        assert_eq!(claim.paper, other.paper);
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
                let lines = claim.lines().filter(|l| !l.trim_start().starts_with("answered_by:"));
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
    let profile = primitives::profile::Profile::shipped("cx4-edr").unwrap();
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
        .answers(&["DRH-P02", "DRH-C03"], &answers::Profiles::shipped(), &AtomicBool::new(false))
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

fn sources(dir: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            sources(&entry.path(), found);
        } else if entry.path().extension().is_some_and(|e| e == "rs") {
            found.push(entry.path());
        }
    }
}

/// Who does not judge names nothing of this module but what is open to all, and reads none of its files.
#[test]
fn calibration_code_uses_the_view_alone() {
    let mut files = Vec::new();
    sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files.len() > 20, "the sources were found");
    // Whoever uses the claims names the module; these may see hold-out claims because they judge.
    let judges = ["/claims/", "/commands/reproduce"];
    let mut uses = 0;
    for file in files {
        let name = file.display().to_string();
        if judges.iter().any(|judge| name.contains(judge)) {
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
    ] {
        assert!(good.contains(from));
        let got = refused(&good.replace(from, to));
        assert!(got.contains(says), "{to}\n  wanted {says}\n  got    {got}");
    }
    let twice = good.to_owned() + good.split_once("claims:\n").unwrap().1;
    assert!(refused(&twice).contains("c.yaml:14:9: the claim A is there twice"), "{}", refused(&twice));
}
