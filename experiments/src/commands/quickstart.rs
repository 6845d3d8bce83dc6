//! `doorbell quickstart`, and `doorbell` alone: the whole tool once, on this machine, without hardware.
//!
//! Measures the primitives of shared memory, simulates those of a published NIC, lets the cost model choose a plan for
//! SmallBank on both, runs it against the pure plans, and leaves one page. What was measured is kept when it is
//! interrupted, and the next run goes on there.

use super::characterize::{Characterization, characterize};
use super::study::{self, Settings, Study};
use super::tune::{self, Verify};
use super::{Context, report, run};
use crate::args::QuickstartArgs;
use crate::directory::{HOME, Place};
use crate::error::{CliError, Exit};
use crate::fabrics::Fabric;
use crate::output::{Talk, emit, human_rate, percent, table};
use crate::schedule;
use crate::scope::usual_scope;
use crate::spec::{FabricChoice, PlanChoice, ProfileChoice, RunSpec, Span};
use crate::sweep::usual_jobs;
use crate::transact::{self, Keep, NamedPlan};
use phases::model::Objective;
use phases::study::Subject;
use primitives::measure::{ResultDir, Row, RunRecord, TableName, count, were};
use primitives::mesh::Shape;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// The NIC that is simulated: the one DrTM+H studied.
const NIC: &str = "cx4-edr";

/// Plans the tuned one runs against.
const RIVALS: [&str; 3] = ["one-sided", "two-sided", "drtm-h"];

/// The command.
///
/// # Errors
/// Exit code 1 if a check failed or this machine's own fabric could not be measured, 2 if the output directory cannot be used.
pub fn run(args: &QuickstartArgs, context: &Context) -> Result<(), CliError> {
    if let Some(json) = &args.output.json {
        json.check()?;
    }
    let began = Instant::now();
    let out = args.output.out.clone().map_or_else(|| Place::Usual(HOME.into()), Place::Named);
    context.interrupt.listen()?;
    // That the machine is busy is said once, of all its parts.
    let part = &Context { talk: context.talk.busy_is_told(), ..context.clone() };
    let mut quick = Quickstart {
        out: &out,
        seed: args.seed,
        context: part,
        dirs: Vec::new(),
        rows: Vec::new(),
        judged: Vec::new(),
    };
    let loopback = FabricChoice::Loopback;
    let sim = FabricChoice::Sim(ProfileChoice::Shipped(NIC.to_owned()));
    quick.say(1, "measuring this machine's own fabric: shared memory between threads (loopback)");
    // Threads that get no turn measure nothing; what is simulated can be had all the same.
    let unmeasured = match quick.characterize(&loopback) {
        Err(error) if error.exit() == Exit::Check => Some(error),
        done => done.map(|()| None)?,
    };
    if let Some(error) = &unmeasured {
        context.talk.warn(format!("not measured: {}", error.message()));
    }
    quick.say(2, &format!("simulating the primitives of a published NIC ({NIC})"));
    quick.characterize(&sim)?;
    quick.say(3, "one transaction phase at a time, in each variant, simulated");
    for subject in Subject::ALL {
        quick.study(&sim, subject)?;
    }
    quick.say(4, "SmallBank on the simulated NIC: choosing a plan, and running it against its rivals");
    quick.compare(&sim, &simulated_bank(sim.clone(), args.seed))?;
    if unmeasured.is_none() {
        quick.say(5, "SmallBank on this machine: the same, in real time");
        quick.compare(&loopback, &measured_bank(args.seed))?;
    }
    let page = report::render(&quick.dirs, out.path(), false, part)?;
    if let Some(busy) = busy(&quick.dirs) {
        context.talk.warn(busy);
    }
    let mut people: String = page.answers.iter().map(|answer| format!("{answer}\n")).collect();
    people.push('\n');
    people.push_str(&table(
        &["fabric", "plan", "committed", "predicted", "p50", "isolation"],
        quick.rows.clone(),
    ));
    people.push('\n');
    quick.judged.iter().for_each(|line| people.push_str(&format!("{line}\n")));
    people.push_str(&format!("\npage: {}\n", page.page.display()));
    context.talk.say(format!("done in {:.0} s", began.elapsed().as_secs_f64()));
    let document = json!({ "report": page.page, "answers": page.answers, "choices": quick.judged, "directories": quick.dirs });
    emit(args.output.json.as_ref(), &document, &people)?;
    report::whole(&page)?;
    unmeasured.map_or(Ok(()), |error| Err(error.context("all but this machine's own fabric is on the page")))
}

/// What to say of all directories together if the machine was busy.
fn busy(dirs: &[PathBuf]) -> Option<String> {
    let busy_of = |dir: &PathBuf| {
        let record = RunRecord::read(dir).ok()?;
        let rows = ResultDir::read(dir, &record, TableName::Points).ok()?;
        let real = rows.iter().filter(|row| row.get("busy").is_some_and(|busy| !busy.is_empty())).count();
        Some((schedule::busy_among(&rows), real))
    };
    let all = dirs.iter().filter_map(busy_of);
    let (busy, real) = all.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    (busy > 0).then(|| {
        let (real, were) = (count(real as u64, "point"), were(busy as u64));
        format!(
            "of {real} in real time {busy} {were} {}: the scheduler had a say in their numbers; the page names them; on an idle \
             machine, with another --out, they would be better",
            schedule::NOTED
        )
    })
}

/// SmallBank on a simulated cluster: three copies of each record, and fewer accounts than the default so that filling
/// them does not take longer than the run.
fn simulated_bank(fabric: FabricChoice, seed: u64) -> RunSpec {
    RunSpec {
        fabric,
        set: BTreeMap::from([("accounts_per_thread".to_owned(), json!(10_000))]),
        plan: PlanChoice::Tuned,
        nodes: 4,
        threads: 4,
        replicas: 3,
        duration: Span::from_ns(1_000_000),
        seed,
        ..RunSpec::default()
    }
}

/// SmallBank between two logical nodes of one thread each: what two CPUs can run side by side.
fn measured_bank(seed: u64) -> RunSpec {
    RunSpec {
        plan: PlanChoice::Tuned,
        nodes: 2,
        threads: 1,
        replicas: 1,
        duration: Span::from_ns(500_000_000),
        seed,
        ..RunSpec::default()
    }
}

struct Quickstart<'q> {
    out: &'q Place,
    seed: u64,
    context: &'q Context,
    dirs: Vec<PathBuf>,
    rows: Vec<[String; 6]>,
    /// How the chosen plans did against those that ran beside them.
    judged: Vec<String>,
}

impl Quickstart<'_> {
    fn say(&self, step: u32, what: &str) {
        self.context.talk.say(format!("[{step}/5] {what}"));
    }

    fn characterize(&mut self, fabric: &FabricChoice) -> Result<(), CliError> {
        let virtual_time = fabric.virtual_time();
        let wanted = Characterization {
            fabric: fabric.clone(),
            scope: usual_scope(virtual_time, true),
            only: Vec::new(),
            seed: self.seed,
            lengthen: true,
            jobs: usual_jobs(virtual_time),
            out: self.out.part(&format!("characterize-{}", short(fabric))),
            cluster: None,
        };
        self.dirs.push(characterize(&wanted, self.context)?.dir);
        Ok(())
    }

    fn study(&mut self, fabric: &FabricChoice, subject: Subject) -> Result<(), CliError> {
        let wanted = Study {
            subject,
            fabric: fabric.clone(),
            shape: Shape { nodes: 4, workers: 4 },
            coroutines: 16,
            settings: Settings::default(),
            duration: Span::from_ns(100_000),
            lengthen: true,
            seed: self.seed,
            jobs: None,
            out: self.out.part(&format!("study-{}-{}", subject.name(), short(fabric))),
        };
        self.dirs.push(study::study(&wanted, self.context)?.0);
        Ok(())
    }

    /// Tunes, runs the choice and its rivals to see what it costs to follow it (where time is real the named ones alone: all of them, in
    /// turns, would take a minute), and runs the tuned plan and the named ones with their histories checked.
    fn compare(&mut self, choice: &FabricChoice, spec: &RunSpec) -> Result<(), CliError> {
        let fabric = Fabric::open(choice, self.seed)?;
        let profile = tune::profile_for(spec, &fabric, None, self.out.path(), self.context)?;
        let objective = Objective::Throughput;
        let tuned =
            tune::watched(self.context, |go_on| tune::search(spec, &fabric, &profile, objective, go_on))?;
        let place = self.out.part(&format!("tune-{}", short(choice)));
        let (verify, among) = match choice.virtual_time() {
            true => (Verify::All, "its candidates and the presets"),
            false => (Verify::Named(&RIVALS), "those below"),
        };
        let kept = tune::keep(&tuned, spec, &fabric, verify, None, &place, self.context)?;
        self.dirs.push(kept.dir);
        self.run(spec, &fabric, &tuned.plan())?;
        // One that equals the chosen plan has been run.
        for rival in tuned.rivals.iter().filter(|rival| RIVALS.contains(&rival.name.as_str())) {
            self.run(spec, &fabric, &rival.plan())?;
        }
        if let Some(doubt) = &profile.doubt {
            self.judged.push(format!("{choice}: forecasts are by a profile {doubt}"));
        }
        if let Some(verified) = kept.verified {
            let regret = verified.told(percent);
            let judged = format!("{choice}: regret of the chosen plan among {among}, when run: {regret}");
            self.context.talk.say(format!("      {judged}"));
            self.judged.push(judged);
        }
        Ok(())
    }

    /// Runs a plan, unless an earlier quickstart has.
    fn run(&mut self, spec: &RunSpec, fabric: &Fabric, plan: &NamedPlan) -> Result<(), CliError> {
        let place = self.out.part(&format!("run-{}-{}", tune::file_stem(&plan.name), short(&spec.fabric)));
        let mut kept: ResultDir = run::directory(&place, spec, plan, fabric, self.context)?;
        let dir = kept.path().to_owned();
        self.dirs.push(dir.clone());
        if !kept.missing().is_empty() {
            self.context.talk.say(format!("      {} with plan {}", spec.fabric, plan.name));
            let stop = self.context.interrupt.flag();
            let done = transact::run(spec, fabric, plan, Keep { history: true, part: false }, stop);
            if self.context.interrupt.asked() {
                return Err(CliError::interrupted().hint(format!("go on with: {}", self.context.command)));
            }
            let done = done?;
            kept.keep(0, &done.point(Row::new()))?;
            // The page that is made of all of them warns of each.
            crate::schedule::note(&mut kept, Talk::new(0, true));
            crate::window::tell(done.result.too_short.as_ref(), Some(&mut kept), self.context.talk);
            kept.finish(false, done.json(spec))?;
            done.passed(&self.context.command)?;
        }
        drop(kept);
        let summary = RunRecord::read(&dir)?.summary;
        self.rows.push(line(spec, plan, &summary));
        Ok(())
    }
}

fn short(fabric: &FabricChoice) -> &'static str {
    if fabric.virtual_time() { "sim" } else { "loopback" }
}

fn line(spec: &RunSpec, plan: &NamedPlan, summary: &Value) -> [String; 6] {
    let rate = |v: Option<f64>| v.map_or("not available".to_owned(), human_rate);
    let p50 = summary["latency_ns"]["p50"].as_u64();
    [
        spec.fabric.to_string(),
        plan.name.clone(),
        rate(summary["committed_per_s"].as_f64()),
        rate(plan.prediction.as_ref().map(|p| p.committed_per_s)),
        p50.map_or("not available".to_owned(), |ns| primitives::units::Nanos(ns).to_string()),
        summary["isolation"]["verdict"].as_str().unwrap_or("not checked").to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::measure::{Kind, PointResult};

    #[test]
    fn that_the_machine_was_busy_is_said_once_of_all_directories() {
        let folder = tempfile::tempdir().unwrap();
        let mut dirs = Vec::new();
        for (name, busy) in [("a", "yes"), ("b", "no"), ("c", "yes"), ("d", "")] {
            let path = folder.path().join(name);
            let mut dir =
                ResultDir::create(&path, RunRecord::new(Kind::Run, "loopback", json!({}), 1, 1), &[])
                    .unwrap();
            dir.keep(0, &PointResult::of(Row::new().with("busy", busy))).unwrap();
            dir.finish(false, json!({})).unwrap();
            dirs.push(path);
        }
        let told = busy(&dirs).unwrap();
        assert!(told.starts_with("of 3 points in real time 2 were taken on a busy machine: "), "{told}");
        assert_eq!((busy(&dirs[1..2]), busy(&dirs[3..])), (None, None));
    }
}
