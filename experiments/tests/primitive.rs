//! Benchmarks of requests through the binary: the same bytes for any number of jobs, and no allocation of what this
//! machine cannot hold.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

fn doorbell(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_doorbell"))
        .current_dir(dir)
        .args(args)
        .output()
        .expect("the binary starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Every file under `dir` but the record, which says when and by which command it was made.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name != "run.json" && name != ".lock") {
                let name = path.strip_prefix(dir).expect("inside").display().to_string();
                all.insert(name, std::fs::read(&path).expect("a file"));
            }
        }
    }
    all
}

const SPEC: &str = "question: Do jobs matter?\nkind: primitive\nfabric: sim:cx4-edr\nnodes: 3\nthreads: 2\n\
                    coroutines: 3\nduration: 20us\ngrid:\n  verb: [read, write, cas, rpc]\n  payload: [8, 256]\n";

#[test]
fn one_job_and_two_leave_the_same_bytes() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path();
    std::fs::write(dir.join("jobs.yaml"), SPEC).expect("written");
    let experiment = |file: &str, jobs: &str, out: &str| {
        let done = doorbell(dir, &["experiment", file, "--jobs", jobs, "--out", out]);
        assert!(done.status.success(), "{}", stderr(&done));
        files(&dir.join(out))
    };
    let one = experiment("jobs.yaml", "1", "one");
    assert!(one.contains_key("points.csv") && one.len() > 8, "{:?}", one.keys());
    assert_eq!(experiment("jobs.yaml", "2", "two"), one);
    let characterize = |jobs: &str, out: &str| {
        let asked = ["characterize", "--fabric", "sim:cx4-edr", "--quick", "--bench", "latency"];
        let done = doorbell(dir, &[&asked[..], &["--jobs", jobs, "--out", out]].concat());
        assert!(done.status.success(), "{}", stderr(&done));
        files(&dir.join(out))
    };
    assert_eq!(characterize("2", "b"), characterize("1", "a"));
    // Transactions, their histories checked: two machines' worth of coroutines, locks, aborts and logs in each point.
    let grid = "question: Do jobs matter?\nfabric: sim:cx4-edr\nnodes: 2\nthreads: 2\nreplicas: 2\nduration: 50us\n\
                set: {accounts_per_thread: 200}\ngrid:\n  protocol: [occ, waitdie, mvcc]\n  plan: [one-sided, two-sided]\n";
    std::fs::write(dir.join("transactions.yaml"), grid).expect("written");
    let one = experiment("transactions.yaml", "1", "c");
    assert_eq!(String::from_utf8_lossy(&one["points.csv"]).lines().count(), 1 + 6);
    assert_eq!(experiment("transactions.yaml", "2", "d"), one);
}

/// Whoever draws a page of shards in a script sees by the exit code that one is missing, if asked for.
#[test]
fn a_page_of_some_shards_is_told_from_a_whole_one() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path();
    std::fs::write(dir.join("grid.yaml"), SPEC).expect("written");
    for shard in ["1", "2"] {
        let share = format!("{shard}/2");
        let done =
            doorbell(dir, &["experiment", "grid.yaml", "--shard", &share, "--out", shard, "--jobs", "1"]);
        assert!(done.status.success(), "{}", stderr(&done));
    }
    let page = |dirs: &[&str], flags: &[&str]| {
        doorbell(dir, &[&["report"][..], dirs, &["--out", "page", "--json", "-"], flags].concat())
    };
    let told = |output: &Output| -> serde_json::Value {
        serde_json::from_slice(&output.stdout).expect("JSON on stdout")
    };
    for (dirs, whole) in [(&["1"][..], false), (&["1", "2"], true)] {
        let (lenient, strict) = (page(dirs, &[]), page(dirs, &["--complete"]));
        assert!(lenient.status.success(), "{}", stderr(&lenient));
        assert_eq!(strict.status.code(), Some(i32::from(!whole)), "{}", stderr(&strict));
        assert_eq!(told(&strict)["complete"], whole);
        let unfinished = &told(&strict)["unfinished"];
        match whole {
            true => assert_eq!(unfinished, &serde_json::json!([])),
            false => assert_eq!((&unfinished[0]["points"], &unfinished[0]["of"]), (&4.into(), &8.into())),
        }
    }
}

#[test]
fn what_memory_cannot_hold_is_refused_before_it_is_allocated() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path();
    // Some terabytes of message buffers: 1024 sessions for each of 16384 workers.
    let spec = SPEC.replace("nodes: 3", "nodes: 1024").replace("threads: 2", "threads: 16");
    std::fs::write(dir.join("huge.yaml"), spec).expect("written");
    let huge = ["--nodes", "1024", "--threads", "16", "--coroutines", "64"];
    let characterize = [&["characterize", "--fabric", "sim:cx4-edr", "--out", "out"][..], &huge].concat();
    let experiment: &[&str] = &["experiment", "huge.yaml", "--out", "out"];
    for (args, helps) in [(experiment, "outstanding or payload in the file"), (&characterize, "--nodes")] {
        let refused = doorbell(dir, args);
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(3), "{said}");
        assert!(said.contains("GiB are free") && said.contains(helps), "{said}");
        assert!(!dir.join("out").exists(), "nothing was begun");
    }
    assert!(!stderr(&doorbell(dir, &["experiment", "huge.yaml", "--jobs", "1"])).contains("panicked"));
}

/// Runs the command in an address space of so many MiB.
fn within(dir: &Path, mib: u64, args: &[&str]) -> Output {
    let mut limited = Command::new("sh");
    let script = format!("ulimit -v {} && exec \"$0\" \"$@\"", mib << 10);
    limited.args(["-c", &script, env!("CARGO_BIN_EXE_doorbell")]).args(args).current_dir(dir);
    limited.output().expect("a shell")
}

#[test]
fn a_study_that_memory_cannot_hold_is_refused_before_it_is_begun() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path();
    let huge = ["--nodes", "1024", "--threads", "32", "--jobs", "1", "--out", "out"];
    for phase in ["execution", "validation", "logging", "commit", "read-only"] {
        let refused = within(dir, 8_000, &[&["study", phase, "--fabric", "sim:cx4-edr"], &huge[..]].concat());
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(3), "{phase}: {said}");
        assert!(said.contains("GiB are free") && said.contains("--nodes"), "{phase}: {said}");
        assert!(!dir.join("out").exists(), "nothing was begun");
    }
    // What has room runs.
    let few = ["--nodes", "4", "--threads", "4", "--coroutines", "2", "--duration", "20us", "--jobs", "1"];
    let done = within(dir, 2_000, &[&["study", "execution", "--fabric", "sim:cx4-edr"], &few[..]].concat());
    assert!(done.status.success(), "{}", stderr(&done));
}

/// Two location caches of 200 MB each: one such point fits, and so they run one after the other; four at a time do not.
#[test]
fn transactions_side_by_side_are_refused_by_what_they_need_together() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path();
    let grid = "question: Do they fit?\nfabric: sim:cx4-edr\nnodes: 2\nthreads: 1\nreplicas: 2\n\
                set: {accounts_per_thread: 200}\nduration: 20us\ncache_bytes: 200000000\n\
                grid:\n  protocol: [occ, nowait, waitdie, mvcc]\n";
    std::fs::write(dir.join("two.yaml"), grid).expect("written");
    let run =
        |jobs: &str, out: &str| within(dir, 1_100, &["experiment", "two.yaml", "--jobs", jobs, "--out", out]);
    let together = run("4", "together");
    let said = stderr(&together);
    assert_eq!(together.status.code(), Some(3), "{said}");
    assert!(said.contains("GiB are free") && said.contains("fewer points at a time with --jobs"), "{said}");
    assert!(!dir.join("together").exists(), "nothing was begun");
    let apart = run("1", "apart");
    assert!(apart.status.success(), "{}", stderr(&apart));
}

/// Measures a file, and gives the points' rows with the columns' names before them.
fn measured(dir: &Path, name: &str, body: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let text = format!("question: Does it run?\nkind: primitive\nthreads: 1\ncoroutines: 1\n{body}");
    std::fs::write(dir.join(format!("{name}.yaml")), text).expect("written");
    let done = doorbell(dir, &["experiment", &format!("{name}.yaml"), "--out", name]);
    assert!(done.status.success(), "{}", stderr(&done));
    let table = std::fs::read_to_string(dir.join(name).join("points.csv")).expect("points");
    let mut rows = table.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    (rows.next().expect("a head"), rows.collect())
}

fn cell<'t>((head, _): &(Vec<String>, Vec<Vec<String>>), row: &'t [String], column: &str) -> &'t str {
    &row[head.iter().position(|name| name == column).expect("the column")]
}

/// What is at the edge of what there is runs by the command, not in the simulator's own tests alone.
#[test]
fn extremes_run() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path();
    for (name, body, points) in [
        // Each asks its own node, through its card.
        (
            "alone",
            "fabric: sim:cx4-edr\nnodes: 1\npeers: own\nduration: 50us\ngrid:\n  verb: [read, cas]\n",
            2,
        ),
        (
            "long",
            "fabric: sim:cx4-edr\nnodes: 2\npayload: 1048576\nduration: 5ms\ngrid:\n  verb: [read, write]\n",
            2,
        ),
        // Messages are whole words, payloads need not be.
        (
            "odd",
            "fabric: sim:cx4-edr\nnodes: 2\npayload: 101\nduration: 50us\ngrid:\n  verb: [rpc, rpc-write, rpc-two-writes, rpc-write-imm, rpc-write-send, read]\n",
            6,
        ),
        // More peers than a card of this kind has receives for, at a window of calls for each.
        ("many", "fabric: sim:cx4-edr\nnodes: 200\nservers: 1\nduration: 50us\ngrid:\n  verb: [read]\n", 1),
        // As many nodes as a file may ask for.
        ("most", "fabric: sim:cx4-edr\nnodes: 4096\nservers: 1\nduration: 50us\ngrid:\n  verb: [read]\n", 1),
    ] {
        let table = measured(dir, name, body);
        assert_eq!(table.1.len(), points, "{name}");
        for row in &table.1 {
            assert!(cell(&table, row, "rate_per_s").parse::<f64>().expect("a rate") > 0.0, "{name}: {row:?}");
        }
    }
}

/// A card that has one READ or ATOMIC of a queue pair in flight takes them one by one, whatever is outstanding.
#[test]
fn a_depth_of_one_runs_and_is_kept() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path();
    let shallow = "extends: cx4-edr\nname: shallow\ndescription: One READ at a time.\nnic:\n  \
                   max_rd_atomic: {value: 1, unit: count, source: assumed, ref: the least there can be}\n";
    std::fs::write(dir.join("shallow.profile.yaml"), shallow).expect("written");
    let body = "fabric: sim:cx4-edr\nnodes: 2\noutstanding: 10\nduration: 50us\ngrid:\n  \
                verb: [read, cas]\n  fabric: [sim:cx4-edr, sim:shallow.profile.yaml]\n";
    let table = measured(dir, "depth", body);
    let rates: Vec<f64> =
        table.1.iter().map(|row| cell(&table, row, "rate_per_s").parse().expect("a rate")).collect();
    let [read, read_alone, cas, cas_alone] = rates[..] else { panic!("{rates:?}") };
    // Ten at a time, or one after the other.
    for (ten, alone) in [(read, read_alone), (cas, cas_alone)] {
        assert!(alone > 0.0 && alone < ten / 3.0, "{rates:?}");
    }
}

#[test]
fn what_a_card_cannot_be_asked_for_is_refused_before_anything_is_measured() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path();
    for (body, says) in [
        ("fabric: sim:tcp-10g\nverb: read\n", "x.yaml:4:7: the only point: sim:tcp-10g takes messages only"),
        (
            "fabric: tcp\nverb: rpc-two-writes\n",
            "x.yaml:4:7: the only point: tcp takes messages only, and rpc-two-writes is made of one-sided verbs",
        ),
        ("fabric: sim:cx4-edr\nmemory: card\nverb: cas\n", "has 0 B of memory on its card"),
        ("fabric: sim:cx4-edr\nnodes: 1\n", "or peers: own: one has nobody else to ask"),
        (
            "fabric: sim:cx4-edr\nverb: rpc-write-send\nack: passive\n",
            "rpc-write-send and ack: its WRITEs are confirmed by the reply in any case",
        ),
        ("fabric: sim:cx4-edr\nverb: rpc-write-imm\npayload: 5000\n", "at most 4032 B, not 5000"),
        (
            "fabric: sim:cx4-edr\nduration: 2ms\nmax_duration: 3ms\n",
            "is for a precision, and none is asked for",
        ),
        (
            "fabric: sim:cx4-edr\nprecision: 1%\nduration: 2ms\nmax_duration: 1ms\n",
            "the longest run, 1ms, is shorter than its shortest",
        ),
    ] {
        let text = format!("question: Is it refused?\nkind: primitive\n{body}");
        std::fs::write(dir.join("x.yaml"), text).expect("written");
        let refused = doorbell(dir, &["experiment", "x.yaml", "--out", "out"]);
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        assert!(stderr(&refused).contains(says), "{body}: {}", stderr(&refused));
        assert!(!dir.join("out").exists(), "nothing was begun");
    }
}

/// Calls over every transport, simulated and on threads.
#[test]
fn calls_run_over_every_transport() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path();
    let grid = "grid:\n  verb: [rpc, rpc-write, rpc-two-writes, rpc-write-imm, rpc-write-send]\n  payload: [8, 104]\n";
    for (name, body) in [
        ("simulated", "fabric: sim:cx4-edr\nnodes: 3\noutstanding: 10\nduration: 50us\n"),
        ("threads", "fabric: loopback\nnodes: 2\noutstanding: 10\nduration: 100ms\n"),
    ] {
        let table = measured(dir, name, &format!("{body}{grid}"));
        assert_eq!(table.1.len(), 10, "{name}");
        for row in &table.1 {
            // A busy machine may not run two threads in turn within a window: no call ends in it, and none fails.
            let rate = cell(&table, row, "rate_per_s").parse::<f64>();
            assert!(name == "threads" || rate.expect("a rate") > 0.0, "{name}: {row:?}");
        }
    }
}

/// ATOMICs of so many queue pairs take milliseconds to settle: a fixed duration that is shorter says so, in the point and in the record.
#[test]
fn a_fixed_duration_says_that_the_load_was_not_steady() {
    let temp = tempfile::tempdir().expect("a directory");
    let text = "question: Is it steady?\nkind: primitive\nfabric: sim:cx6\nservers: 1\nnodes: 17\nthreads: 8\n\
                coroutines: 16\nverb: cas\naddresses: 1024\nduration: 2ms\n";
    std::fs::write(temp.path().join("short.yaml"), text).expect("written");
    let done = doorbell(temp.path(), &["experiment", "short.yaml", "--out", "short"]);
    assert!(done.status.success() && stderr(&done).contains("was not steady"), "{}", stderr(&done));
    let points = std::fs::read_to_string(temp.path().join("short/points.csv")).expect("points");
    assert!(points.contains(",unsettled"), "{points}");
    let record = std::fs::read_to_string(temp.path().join("short/run.json")).expect("a record");
    assert!(record.contains("1 of 1 point was not steady in the measured time"), "{record}");
}

/// A precision holds for requests too, and what is usual is that of each point's own fabric.
#[test]
fn a_precision_is_kept_and_usual_times_are_those_of_the_fabric() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path();
    let body =
        "fabric: sim:cx4-edr\nnodes: 2\nduration: 200us\nprecision: 1%\ngrid:\n  verb: [read, write]\n";
    let table = measured(dir, "precise", body);
    for row in &table.1 {
        let width: f64 = cell(&table, row, "rate_ci_relative").parse().expect("an interval");
        assert!(width <= 0.01 && cell(&table, row, "converged") == "yes", "{row:?}");
    }
    let table =
        measured(dir, "usual", "nodes: 2\nverb: read\ngrid:\n  fabric: [\"sim:cx4-edr\", \"sim:cx5\"]\n");
    for row in &table.1 {
        let ns: f64 = cell(&table, row, "virtual_ns").parse().expect("virtual time");
        assert!(ns < 50e6, "milliseconds, not a second: {row:?}");
    }
}

/// Every profile of a comparison is recorded, and on the page.
#[test]
fn all_profiles_of_a_comparison_are_recorded_and_on_the_page() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path();
    let mine = "extends: cx5\nname: mine\ndescription: A card of mine\n";
    std::fs::write(dir.join("mine.profile.yaml"), mine).expect("written");
    let body = "nodes: 2\nverb: read\nduration: 100us\ngrid:\n  fabric: [\"sim:cx4-edr\", \"sim:mine.profile.yaml\"]\n";
    measured(dir, "two", body);
    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.join("two/run.json")).expect("a record")).expect("JSON");
    let names: Vec<&str> =
        record["profiles"].as_array().expect("both").iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["cx4-edr", "mine"]);
    let drawn = doorbell(dir, &["report", "two", "--out", "page"]);
    assert!(drawn.status.success(), "{}", stderr(&drawn));
    let page = std::fs::read_to_string(dir.join("page/report.html")).expect("a page");
    assert!(
        page.contains("profile cx4-edr (")
            && page.contains("profile mine (")
            && !page.contains("not recorded")
    );
}
