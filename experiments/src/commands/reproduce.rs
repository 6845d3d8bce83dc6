//! `doorbell reproduce`: runs the experiments that answer the papers' claims and prints the scoreboard.
//!
//! Each experiment is measured once, into a result directory of its own under `--out`, and resumed there; claims
//! only read it. Where another run has its name it is refused, and no `NAME-2` is taken: page and scoreboard find it by its name. The scoreboard itself is a result directory too (`scoreboard`), made anew each time from what has
//! been measured, so `doorbell report OUT` draws it with the experiments' figures.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use primitives::measure::{ResultDir, Row, TableName, count};
use serde_json::{Value, json};

use super::Context;
use super::experiment::{measure_with, record};
use crate::args::ReproduceArgs;
use crate::claims::answers::Profiles;
use crate::claims::known::Known;
use crate::claims::scoreboard::{self, Counts, Entry};
use crate::claims::verdict::{CALIBRATE, HOLD_OUT, Verdict};
use crate::claims::{self, Answer, Binding, Claim, Claims, Kind, Obstacle, Split, Table, library};
use crate::directory::HOME;
use crate::error::{CliError, Exit};
use crate::fabrics::require;
use crate::output::{change, emit, table};
use crate::spec::Experiment;
use crate::sweep::Sweep;

/// Experiments by name, in the order in which they are measured, and the points that are asked for; all where none are told.
type Wanted = Vec<(&'static str, Experiment, Option<BTreeSet<u64>>)>;

/// The command.
///
/// # Errors
/// If nothing bears a name asked for, an experiment fails, or Ctrl-C ends it; what was measured is kept, and the
/// scoreboard of it is printed.
pub fn run(args: &ReproduceArgs, context: &Context) -> Result<(), CliError> {
    if let Some(json) = &args.output.json {
        json.check()?;
    }
    let claims = claims::load()?;
    let asked = asked(&claims, &args.what)?;
    if args.list {
        return emit(args.output.json.as_ref(), &listed(&asked), &list(&asked));
    }
    let out = args.output.out.clone().unwrap_or_else(|| Path::new(HOME).join("reproduce"));
    let (wanted, lacking) = experiments(&asked, &args.what, args.jobs)?;
    ResultDir::may_hold_runs(&out)?;
    context.interrupt.listen()?;
    let points = |(_, experiment, only): &(_, Experiment, Option<BTreeSet<u64>>)| {
        only.as_ref().map_or(experiment.points.len(), BTreeSet::len)
    };
    context.talk.say(format!(
        "{} of {}, by {} (what has been measured already is taken over)",
        count(asked.len() as u64, "claim"),
        count(wanted.len() as u64, "experiment"),
        count(wanted.iter().map(points).sum::<usize>() as u64, "point")
    ));
    let mut tables: BTreeMap<&str, Table> = BTreeMap::new();
    let mut known: BTreeMap<&str, Known> = BTreeMap::new();
    let mut ended = Ok(());
    for (number, (name, experiment, only)) in wanted.iter().enumerate() {
        let points = match only {
            Some(only) => format!(
                ", of whose {} these claims need {}",
                count(experiment.points.len() as u64, "point"),
                only.len()
            ),
            None => String::new(),
        };
        context.talk.say(format!("{} of {}: {name}{points}", number + 1, wanted.len()));
        match measure(name, experiment, only.as_ref(), &out, args.jobs, context) {
            Ok((table, rates)) => {
                tables.insert(name, table);
                known.insert(name, rates);
            }
            Err(error) => {
                ended = Err(error);
                break;
            }
        }
    }
    let profiles = Profiles::shipped();
    let entries: Vec<Entry<'_>> =
        asked.iter().map(|claim| Entry::new(claim, answer(claim, &tables, &lacking, &profiles))).collect();
    let data = json!({
        "claims": entries.iter().map(Entry::json).collect::<Vec<_>>(),
        "summary": scoreboard::summary(&entries),
        "without_reason": scoreboard::unexplained(&entries),
        "not_yet": scoreboard::not_yet(&entries),
        "rates_known": known,
    });
    if !tables.is_empty() {
        keep(&out.join("scoreboard"), &entries, &data["summary"], context)?;
    }
    let mut people = shown(&entries, args.all);
    for (name, rates) in &known {
        rates.doubt().into_iter().for_each(|doubt| people.push_str(&format!("\n{name}: {doubt}")));
    }
    if !tables.is_empty() {
        people.push_str(&format!("\nresults: {0}; a page with charts: doorbell report {0}\n", out.display()));
    }
    emit(args.output.json.as_ref(), &data, &people)?;
    ended
}

/// The claims asked for: by id, paper, figure (`drtmh-osdi18/fig5`, or `fig5` of any paper) or experiment; all of
/// them if nothing is asked for.
fn asked<'c>(claims: &'c Claims, names: &[String]) -> Result<Vec<&'c Claim>, CliError> {
    let bears = |claim: &Claim, name: &str| {
        let family = claim.family();
        claim.id == name
            || claim.paper == name
            || family == name
            || format!("{}/{family}", claim.paper) == name
            || claim.answered_by.iter().flat_map(Binding::experiments).any(|known| known == name)
    };
    for name in names {
        if !claims.iter().any(|claim| bears(claim, name)) {
            let mut known: BTreeSet<String> = BTreeSet::new();
            for claim in claims.iter() {
                let (paper, family) = (claim.paper.clone(), claim.family());
                // Who names a paper's figure means no paper.
                if name.contains('/') {
                    known.insert(format!("{paper}/{family}"));
                    continue;
                }
                let experiments = claim.answered_by.iter().flat_map(Binding::experiments).map(str::to_owned);
                known.extend([claim.id.clone(), paper, family].into_iter().chain(experiments));
            }
            let error = CliError::usage(format!("no claim, paper, figure or experiment is called `{name}`"));
            if library::names().any(|known| known == name) {
                return Err(CliError::usage(format!("no claim is answered by the experiment `{name}`"))
                    .hint(format!("it stands by itself: doorbell experiment experiments/{name}.yaml")));
            }
            // There are hundreds: a command shows them better than an error.
            let all = "`doorbell reproduce --list` shows all";
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            return Err(match crate::names::meant_counted(name, &known) {
                Some(question) => error.hint(format!("{question} {all}")),
                None => error.hint(all),
            });
        }
    }
    Ok(claims.iter().filter(|c| names.is_empty() || names.iter().any(|name| bears(c, name))).collect())
}

/// The experiments that answer the claims, and those that cannot run here, with the reason. Where something but the experiment itself was
/// named, the points that its claims read are enough; figures of all claims want whole curves.
fn experiments(
    claims: &[&Claim],
    named: &[String],
    jobs: Option<usize>,
) -> Result<(Wanted, BTreeMap<String, String>), CliError> {
    let bindings = || claims.iter().filter_map(|claim| claim.answered_by.as_ref());
    let needed: BTreeSet<&str> = bindings().flat_map(Binding::experiments).collect();
    let (mut wanted, mut lacking) = (Vec::new(), BTreeMap::new());
    for name in library::names().filter(|name| needed.contains(name)) {
        let experiment = library::experiment(name)?;
        let lacks = experiment.points.iter().find_map(|point| require(&point.spec.fabric).err());
        match lacks.or_else(|| crate::memory::jobs_for(&experiment, jobs).err()) {
            None => {
                let whole = named.is_empty() || named.iter().any(|named| named == name);
                let here = bindings().filter(|binding| binding.experiments().any(|known| known == name));
                let only = here.flat_map(|binding| library::points_of(binding, name, &experiment)).collect();
                wanted.push((name, experiment, (!whole).then_some(only)));
            }
            Some(error) => {
                lacking.insert(name.to_owned(), error.message().to_owned());
            }
        }
    }
    Ok((wanted, lacking))
}

/// Measures what is missing of an experiment, or of `only` those points; the table has every point that is there. Also how well its rates are
/// known.
fn measure(
    name: &str,
    experiment: &Experiment,
    only: Option<&BTreeSet<u64>>,
    out: &Path,
    jobs: Option<usize>,
    context: &Context,
) -> Result<(Table, Known), CliError> {
    let jobs = crate::memory::jobs_for(experiment, jobs)?;
    let mut dir = ResultDir::create(&out.join(name), record(experiment, None, context)?, &experiment.axes())?;
    let measure = measure_with(context);
    let point = |index: u64| {
        let point = usize::try_from(index).ok().and_then(|index| experiment.points.get(index));
        measure(point.ok_or_else(|| CliError::check("a point out of the grid"))?)
    };
    if dir.missing().iter().any(|point| only.is_none_or(|only| only.contains(point))) {
        let sweep = Sweep { only: only.cloned(), ..context.sweep(name, jobs) };
        sweep.run(&mut dir, point, |_| Value::Null)?;
    }
    let mut table = Table::default();
    let at = |row: &Row| {
        let index = row.get("point").and_then(|cell| cell.parse::<usize>().ok());
        index.and_then(|index| experiment.points.get(index))
    };
    let rows = dir.rows(TableName::Points)?;
    for row in &rows {
        at(row).into_iter().for_each(|point| table.push(&point.at, row));
    }
    if TableName::of(experiment.kind.results()).contains(&TableName::Phases) {
        for row in dir.rows(TableName::Phases)? {
            at(&row).into_iter().for_each(|point| table.push_phase(&point.at, &row));
        }
    }
    if TableName::of(experiment.kind.results()).contains(&TableName::Aborts) {
        let aborts = dir.rows(TableName::Aborts)?;
        for point in rows.iter().filter_map(at) {
            let of_point = |row: &&Row| row.number("point") == Some(point.index as f64);
            table.push_aborts(&point.at, &aborts.iter().filter(of_point).collect::<Vec<_>>());
        }
    }
    Ok((table, Known::of(&rows)))
}

/// What a claim's experiment gave, or why nothing did.
fn answer(
    claim: &Claim,
    tables: &BTreeMap<&str, Table>,
    lacking: &BTreeMap<String, String>,
    profiles: &Profiles,
) -> Result<Answer, String> {
    let Some(binding) = &claim.answered_by else {
        let why = claim.not_yet.as_ref().map(|open| open.why.clone());
        return Err(why.unwrap_or_else(|| "no experiment yet".to_owned()));
    };
    if let Some(answer) = claims::answers::parameter(binding, claim, profiles) {
        return answer;
    }
    let name = binding.experiment.as_deref().unwrap_or_default();
    if let Some(why) = binding.experiments().find_map(|name| lacking.get(name)) {
        return Err(why.clone());
    }
    let table =
        Table::of(binding, |name| tables.get(name)).ok_or("an experiment that it needs was not measured")?;
    let experiment = library::experiment(name).map_err(|e| e.message().to_owned())?;
    let y = library::y(binding, &experiment).unwrap_or_default();
    claims::evaluate(binding, &y, &claim.unit, claim.split, &table)
}

/// What an error is of, in two lines that precede each table.
const ERRORS: &str = "errors: a gain of 13 % is compared as 1.13 and a loss of 5 % as 0.95, a bound as the number that it names;\n\
                      what a paper states must also show, by more than half of it and by more than the rates are known";

/// The scoreboard for people: what was checked, misses with their numbers, the papers' contradictions, the counts.
fn shown(entries: &[Entry<'_>], all: bool) -> String {
    let mut text = String::new();
    for split in [Split::Calibrate, Split::HoldOut] {
        let of_split: Vec<&Entry<'_>> = entries.iter().filter(|entry| entry.claim.split == split).collect();
        if of_split.is_empty() {
            continue;
        }
        let checked =
            |e: &&&Entry<'_>| all || matches!(e.verdict, Verdict::Pass | Verdict::Fail | Verdict::Restated);
        let listed: Vec<&Entry<'_>> = of_split.iter().filter(checked).copied().collect();
        let (title, allowed) = match split {
            Split::Calibrate => ("Calibrate claims: they may set parameters", CALIBRATE),
            Split::HoldOut => ("Hold-out claims: predicted, never fitted", HOLD_OUT),
        };
        text.push_str(&format!("{title} (numbers within {:.0} %)\n{ERRORS}\n", 100.0 * allowed));
        if listed.is_empty() {
            text.push_str(&format!("none of these {} has an answer; --all lists them\n\n", of_split.len()));
            continue;
        }
        let rows = listed.iter().map(|entry| {
            let claim = entry.claim;
            let [what, published] = in_words(claim);
            [
                claim.id.clone(),
                format!("{} {}", claim.family(), claim.kind.name()),
                what,
                published,
                entry.got(),
                entry.error.map_or(String::new(), change),
                entry.verdict.name().to_owned(),
            ]
        });
        text.push_str(&table(
            &["claim", "where and kind", "what", "published", "got", "error", "verdict"],
            rows.collect::<Vec<_>>(),
        ));
        for entry in listed.iter().filter(|entry| entry.verdict == Verdict::Fail) {
            let said = |what: &str, words: Option<&str>| {
                words.map(|words| format!(" {what}{}", words.trim_end_matches('.'))).unwrap_or_default()
            };
            let numbers = Some(entry.detail()).filter(|numbers| !numbers.is_empty());
            let parts = [
                said("", numbers),
                said("Reason: ", entry.reason()),
                said("Caveat: ", entry.claim.caveat.as_deref()),
            ];
            let mut told = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".");
            if told.is_empty() {
                told = " see the numbers".to_owned();
            }
            text.push_str(&format!("  {}:{told}.\n", entry.claim.id));
        }
        let open = scoreboard::unexplained(listed.iter().copied());
        if !open.is_empty() {
            text.push_str(&format!("  no reason is given for: {}\n", open.join(", ")));
        }
        text.push('\n');
    }
    let pairs = scoreboard::contradictions(entries);
    if !pairs.is_empty() {
        text.push_str("The papers contradict themselves or each other; both numbers stand:\n");
        for (a, b) in pairs {
            let said = |e: &Entry<'_>| {
                let got = if e.got().is_empty() { e.verdict.name().to_owned() } else { e.got() };
                format!("{} {}, got {got}", e.claim.id, e.claim.value.text(&e.claim.unit))
            };
            text.push_str(&format!("  {}; {}\n", said(a), said(b)));
        }
        text.push('\n');
    }
    text.push_str(&totals(entries));
    text.push_str(&unanswered(entries, all));
    text
}

/// How many claims nothing answers, by obstacle; of `all`, why each is not answered.
fn unanswered(entries: &[Entry<'_>], all: bool) -> String {
    let open = claims::by_obstacle(entries.iter().map(|entry| entry.claim));
    if open.is_empty() {
        return String::new();
    }
    let number: usize = open.iter().map(|(_, claims)| claims.len()).sum();
    let hint = if all { "" } else { "; --all says why of each" };
    let mut text = format!("\nNothing answers {} of these claims (not yet or external){hint}\n", number);
    let row = |(kind, claims): &(Obstacle, Vec<_>)| {
        [kind.name().to_owned(), claims.len().to_string(), kind.meaning().to_owned()]
    };
    text.push_str(&table(&["kind", "claims", "what it means"], open.iter().map(row).collect::<Vec<_>>()));
    for (kind, claims) in open.iter().filter(|_| all) {
        text.push_str(&format!("\n{}: {}\n", kind.name(), kind.meaning()));
        for (claim, not_yet) in claims {
            text.push_str(&format!("  {}: {}\n", claim.id, not_yet.why.trim_end()));
        }
    }
    text
}

/// The counts by paper, and in a table of its own how many of each kind passed.
fn totals(entries: &[Entry<'_>]) -> String {
    let papers: BTreeSet<&str> = entries.iter().map(|e| e.claim.paper.as_str()).collect();
    let (mut rows, mut kinds) = (Vec::new(), Vec::new());
    for split in [Split::Calibrate, Split::HoldOut] {
        for paper in papers.iter().map(Some).chain([None]) {
            let here =
                |claim: &Claim| claim.split == split && paper.is_none_or(|paper| claim.paper == **paper);
            let c = scoreboard::count(entries, here);
            if c == Counts::default() {
                continue;
            }
            let of = |passed: usize, all: usize| {
                if all > 0 { format!("{passed} of {all}") } else { String::new() }
            };
            let named = [split.name().to_owned(), paper.map_or("all papers".to_owned(), |p| (*p).to_owned())];
            let mut row = named.to_vec();
            row.extend([
                c.checked.to_string(),
                c.passed.to_string(),
                c.failed.to_string(),
                of(c.families_passed, c.families),
                c.median_error.map_or(String::new(), |e| format!("{:.1} %", 100.0 * e)),
                c.not_yet.to_string(),
                c.unmeasured.to_string(),
                c.restated.to_string(),
                c.external.to_string(),
            ]);
            rows.push(row);
            if c.checked > 0 {
                let of_kind = |kind: &Kind| {
                    let c = scoreboard::count(entries, |claim| here(claim) && claim.kind == *kind);
                    of(c.passed, c.checked)
                };
                kinds
                    .push(named.into_iter().chain(scoreboard::KINDS.iter().map(of_kind)).collect::<Vec<_>>());
            }
        }
    }
    let mut text = table(
        &[
            "split",
            "paper",
            "checked",
            "pass",
            "fail",
            "relations by figure",
            "median error",
            "not yet",
            "not measured",
            "restated",
            "external",
        ],
        rows,
    );
    if !kinds.is_empty() {
        let head = ["split", "paper", "parameters", "headlines", "ratios", "orderings", "shapes"];
        text.push_str(&format!("\nPassed, by kind\n{}", table(&head, kinds)));
    }
    text
}

fn crop(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}

/// What a claim is about and what was published, so that tables can break them between words.
fn in_words(claim: &Claim) -> [String; 2] {
    let what = claim.metric.replace("-with-", " with ");
    let published = claim.value.text(&claim.unit).replace("\",\"", "\", \"");
    [crop(&what, 50), crop(&published, 40)]
}

/// A table for each paper: names of claims are long.
fn list(claims: &[&Claim]) -> String {
    let papers: BTreeSet<&str> = claims.iter().map(|claim| claim.paper.as_str()).collect();
    let of = |paper: &&str| {
        let rows = claims.iter().filter(|claim| claim.paper == *paper).map(|claim| {
            let by = match (&claim.answered_by, claim.external) {
                (_, true) => "external",
                (Some(Binding { states: Some(_), .. }), _) => "stated here",
                (Some(binding), _) => &binding.named().unwrap_or_else(|| "a profile".to_owned()),
                (None, _) => claim.not_yet.as_ref().map_or("not yet", |open| open.kind.name()),
            };
            let kind = format!("{} {}", claim.split.name(), claim.kind.name());
            let [what, published] = in_words(claim);
            [claim.id.clone(), claim.family(), kind, what, published, by.to_owned()]
        });
        let rows =
            table(&["claim", "where", "kind", "what", "published", "answered by"], rows.collect::<Vec<_>>());
        format!("{paper}\n{rows}")
    };
    let tables = papers.iter().map(of).collect::<Vec<_>>().join("\n");
    let count = |belongs: &dyn Fn(&Claim) -> bool| claims.iter().filter(|claim| belongs(claim)).count();
    let external = count(&|claim| claim.external);
    let bound = count(&|claim| claim.answered_by.is_some() && !claim.external);
    let hold_out = count(&|claim| claim.split == Split::HoldOut);
    format!(
        "{tables}\n{} claims, {hold_out} of them hold-out: {bound} are answered, {external} external, {} not yet\n",
        claims.len(),
        claims.len() - bound - external
    )
}

fn listed(claims: &[&Claim]) -> Value {
    json!({ "claims": claims })
}

/// Writes the scoreboard as a result directory. It follows from what was measured, so it is made anew.
fn keep(dir: &Path, entries: &[Entry<'_>], summary: &Value, context: &Context) -> Result<(), CliError> {
    if dir.join("run.json").exists() {
        for file in ["run.json", "points.csv", ".lock"] {
            match std::fs::remove_file(dir.join(file)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let message = format!("cannot renew {}", dir.join(file).display());
                    return Err(CliError::new(Exit::Machine, message).caused_by(&error));
                }
                _ => {}
            }
        }
    }
    let ids: Vec<&str> = entries.iter().map(|entry| entry.claim.id.as_str()).collect();
    let kind = primitives::measure::Kind::Scoreboard;
    let mut record = primitives::measure::RunRecord::new(
        kind,
        "sim",
        json!({ "claims": ids, "tolerance": { "calibrate": CALIBRATE, "hold-out": HOLD_OUT } }),
        1,
        entries.len() as u64,
    );
    record.title = "Published and reproduced".to_owned();
    record.question = Some("Which of the papers' claims does the simulator predict?".to_owned());
    record.command.clone_from(&context.command);
    record.commit = crate::COMMIT.to_owned();
    record.version = crate::VERSION.to_owned();
    let mut result = ResultDir::create(dir, record, &[])?;
    for (number, entry) in entries.iter().enumerate() {
        result.keep(number as u64, &primitives::measure::PointResult::of(row(entry)))?;
    }
    result.finish(false, summary.clone())?;
    Ok(())
}

fn row(entry: &Entry<'_>) -> Row {
    let claim = entry.claim;
    let value = &claim.value;
    let (lo, hi) = match &entry.answer {
        Some(Answer::Number { value, .. }) => (None, Some(*value)),
        Some(Answer::Span { lo, hi, .. }) => (Some(*lo), Some(*hi)),
        _ => (None, None),
    };
    Row::new()
        .with("claim", claim.id.as_str())
        .with("paper", claim.paper.as_str())
        .with("where", claim.place.as_str())
        .with("family", claim.family())
        .with("split", claim.split.name())
        .with("kind", claim.kind.name())
        .with("metric", claim.metric.as_str())
        .with("unit", claim.unit.as_str())
        .with("published", value.text(&claim.unit))
        .with("published_lo", value.lo)
        .with("published_hi", value.num.or(value.hi))
        .with("got", entry.got())
        .with("got_lo", lo)
        .with("got_hi", hi)
        .with("error", entry.error)
        .with("verdict", entry.verdict.name())
        .with("experiment", claim.answered_by.as_ref().and_then(Binding::named))
        .with("detail", entry.detail())
        .with("reason", entry.reason())
        .with("caveat", claim.caveat.clone())
        .with("contradicts", claim.contradicts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_table_is_shown_of_what_was_not_asked_for_or_has_no_answer() {
        let claims = claims::load().unwrap();
        let claim = claims.get("DRH-M03").unwrap();
        let told = |answer| shown(&[Entry::new(claim, answer)], false);
        let answered = told(Ok(Answer::Holds { held: true, detail: String::new() }));
        assert!(answered.contains("Hold-out claims") && answered.contains("DRH-M03"), "{answered}");
        assert!(!answered.to_lowercase().contains("calibrate"), "{answered}");
        let open = told(Err("not measured".to_owned()));
        assert!(open.contains("none of these 1 has an answer; --all lists them"), "{open}");
        assert!(!open.contains("published"), "{open}");
    }

    /// How many claims nothing answers is told by kind, and why of each where that is asked for, to people and to programs.
    #[test]
    fn what_nothing_answers_is_counted_and_told_where_asked_for() {
        let claims = claims::load().unwrap();
        let unasked = || Err("not asked".to_owned());
        let entries: Vec<Entry<'_>> = claims.iter().map(|claim| Entry::new(claim, unasked())).collect();
        let unbound = claims.iter().filter(|claim| claim.answered_by.is_none()).count();
        let why = &claims.get("BAR-C01-1024").unwrap().not_yet.as_ref().unwrap().why;
        let [short, long] = [false, true].map(|all| shown(&entries, all));
        assert!(short.contains(&format!("Nothing answers {unbound} of these claims")), "{short}");
        assert!(short.contains("to-do") && !short.contains(why.as_str()), "{short}");
        assert!(long.contains(&format!("  BAR-C01-1024: {why}\n")), "{long}");
        let told = scoreboard::not_yet(&entries);
        let counts = told.as_object().unwrap().values().map(|kind| kind["count"].as_u64().unwrap());
        assert_eq!(counts.sum::<u64>(), unbound as u64);
        assert!(told["to-do"]["claims"].as_array().unwrap().contains(&json!("BAR-C01-1024")), "{told}");
        let entry = entries.iter().find(|entry| entry.claim.id == "BAR-C01-1024").unwrap();
        assert_eq!(entry.json()["not_yet"], json!({ "kind": "to-do", "why": why }));
        let bound = [Entry::new(claims.get("DRH-P02").unwrap(), unasked())];
        assert!(!shown(&bound, true).contains("Nothing answers"));
        assert_eq!(scoreboard::not_yet(&bound), json!({}));
    }

    /// Beside a miss stands its reason, or that there is none; what passes gives none, whatever its file says.
    #[test]
    fn misses_are_shown_with_their_reasons() {
        let claims = claims::load().unwrap();
        let named = |id: &str, reason: Option<&str>| {
            let mut claim = claims.get(id).unwrap().clone();
            claim.reason = reason.map(str::to_owned);
            claim
        };
        let told = named("DRH-M03", Some("the cache of requests is too small."));
        let silent = named("DRH-M05", None);
        let judged = |held: bool| {
            let holds = move || Ok(Answer::Holds { held, detail: "1 and 2".to_owned() });
            [Entry::new(&told, holds()), Entry::new(&silent, holds())]
        };
        let text = shown(&judged(false), false);
        assert!(text.contains("  DRH-M03: 1 and 2. Reason: the cache of requests is too small."), "{text}");
        assert!(text.contains("\n  no reason is given for: DRH-M05\n"), "{text}");
        assert!(judged(false)[0].json()["reason"].is_string() && judged(false)[1].json()["reason"].is_null());
        assert_eq!(row(&judged(false)[0]).get("reason"), told.reason.as_deref());
        let text = shown(&judged(true), false);
        assert!(!text.to_lowercase().contains("reason"), "{text}");
        assert!(judged(true)[0].json()["reason"].is_null());
    }

    #[test]
    fn no_table_is_wider_than_those_of_other_commands() {
        let claims = claims::load().unwrap();
        let all: Vec<&Claim> = claims.iter().collect();
        let answers = [
            Ok(Answer::Holds { held: true, detail: String::new() }),
            Ok(Answer::Span { lo: 1234.567, hi: 23_456.789, within: 0.0 }),
            Err("not measured".to_owned()),
        ];
        let entries: Vec<Entry<'_>> = all
            .iter()
            .zip(answers.iter().cycle())
            .map(|(claim, answer)| Entry::new(claim, answer.clone()))
            .collect();
        let tables = [list(&all), shown(&entries, true)].concat();
        // Causes and caveats of misses are prose, below.
        let table = |line: &&str| !line.starts_with("  ") || line.starts_with("   ");
        for line in tables.lines().filter(table) {
            assert!(
                line.chars().count() <= crate::output::WIDTH,
                "{} characters: {line}",
                line.chars().count()
            );
        }
        for claim in &all {
            assert!(tables.matches(&format!(" {} ", claim.id)).count() >= 2, "{}", claim.id);
        }
        assert!(tables.contains("drtmh-osdi18\n") && tables.contains("Passed, by kind"), "{tables}");
    }

    #[test]
    fn claims_are_asked_for_by_id_paper_figure_and_experiment() {
        let claims = claims::load().unwrap();
        let ids = |names: &[&str]| -> usize {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            asked(&claims, &names).unwrap().len()
        };
        assert_eq!(ids(&[]), 404);
        assert_eq!(ids(&["DRH-P02"]), 1);
        assert_eq!(ids(&["ramp-rdma"]), 17);
        assert!(ids(&["drtmh-osdi18/fig5"]) < ids(&["fig5"]));
        assert!(ids(&["rates-per-machine", "DRH-P09"]) >= 5);
        for slip in ["DRH-P2", "DRH-P0222"] {
            let error = asked(&claims, &[slip.to_owned()]).unwrap_err();
            assert!(error.render(false).contains("did you mean `DRH-P"), "{}", error.render(false));
        }
    }
}
