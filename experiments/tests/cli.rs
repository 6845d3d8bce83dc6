//! The `doorbell` binary as a person meets it: help, mistakes, exit codes, pipes and full disks.

mod common;

use common::{code, doorbell, refused, run, stderr, stdout};
use std::path::Path;

/// Compares with `tests/snapshots/NAME.txt`; `UPDATE_SNAPSHOTS=1` writes it.
fn snapshot(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, kept, "{name} changed; if it should, run the test with UPDATE_SNAPSHOTS=1");
}

const COMMANDS: &[&str] = &[
    "quickstart",
    "devices",
    "characterize",
    "calibrate",
    "study",
    "tune",
    "run",
    "node",
    "experiment",
    "reproduce",
    "report",
    "check",
    "completions",
    "man",
];

#[test]
fn help_is_as_agreed() {
    let output = run(&["--help"]);
    assert_eq!(code(&output), 0);
    snapshot("help", &stdout(&output));
    for command in COMMANDS {
        let output = run(&[command, "--help"]);
        assert_eq!(code(&output), 0, "{command}");
        assert!(stderr(&output).is_empty());
        snapshot(&format!("help-{command}"), &stdout(&output));
    }
}

#[test]
fn version_names_the_commit() {
    let output = run(&["--version"]);
    let text = stdout(&output);
    let commit = text.trim().strip_prefix(concat!("doorbell ", env!("CARGO_PKG_VERSION"), " (")).unwrap();
    let commit = commit.strip_suffix(')').unwrap();
    // Whoever works on it has changed something since.
    let commit = commit.strip_suffix("-dirty").unwrap_or(commit);
    assert!(
        commit == "unknown" || commit.len() == 12 && commit.bytes().all(|b| b.is_ascii_hexdigit()),
        "{text}"
    );
}

#[test]
fn bad_flags_say_what_would_do_and_exit_with_2() {
    refused(&["run", "--nodes", "0"], 2, &["'--nodes <N>'", "at least 1 node is needed"]);
    refused(&["run", "--coroutines", "1000000000"], 2, &["the limit is 4096 coroutines"]);
    refused(&["run", "--nodes", "many"], 2, &["a number of nodes is needed"]);
    refused(&["run", "--duration", "10 parsecs"], 2, &["`parsecs` is not a unit of time", "100ms"]);
    refused(&["run", "--duration", "10"], 2, &["10 of what?"]);
    refused(&["run", "--fabric", "loopbcak"], 2, &["did you mean `loopback`?"]);
    refused(&["run", "--fabric", "sim"], 2, &["name a NIC profile"]);
    refused(&["run", "--protocol", "ooc"], 2, &["did you mean `occ`?"]);
    refused(&["run", "--protocol", "occ:batch=4"], 2, &["occ has no settings"]);
    refused(&["run", "--protocol", "calvin:batch=0"], 2, &["a whole number, 1 to 1024"]);
    refused(&["run", "--protocol", "calvin:epochs=4"], 2, &["calvin has settings batch and epoch_us"]);
    let temp = tempfile::tempdir().unwrap();
    let logged = temp.path().join("logged.plan.yaml");
    let steps = "{location_cache: false, fetch: two-sided, lock: two-sided, log: two-sided}";
    std::fs::write(&logged, format!("name: logged\nchosen_by: hand\nwhy: a test\nplan: {steps}\n")).unwrap();
    let logged = logged.to_str().unwrap();
    refused(&["run", "--protocol", "calvin", "--plan", logged], 2, &["calvin never runs this phase"]);
    refused(&["tune", "--protocol", "calvin:batch=8,epoch_us=x"], 2, &["needs a whole number"]);
    refused(&["tune", "--protocol", "occ,epoch_us=50"], 2, &["no protocol is called `occ,epoch_us=50`"]);
    let positions = ["run", "--protocol", "calvin", "--workload", "tpce-cp", "--fabric", "sim:cx4-edr"];
    refused(&positions, 2, &["must be declared ahead", "tpce-cp does not declare them"]);
    let orders = ["run", "--protocol", "fasst", "--workload", "tpcc", "--fabric", "sim:cx4-edr"];
    refused(&orders, 2, &["locks a record before it has looked", "run it under another protocol"]);
    refused(&["run", "--workload", "smalbank"], 2, &["did you mean `smallbank`?"]);
    refused(&["run", "--plan", "drtmh"], 2, &["did you mean `drtm-h`?"]);
    refused(&["run", "--set", "hot"], 2, &["key=value"]);
    refused(&["run", "--seed", "-1"], 2, &["--seed", "a whole number from 0 to 18446744073709551615"]);
    refused(&["run", "--sede", "1"], 2, &["--seed"]);
    refused(&["rum"], 2, &["'run'"]);
    refused(&["study", "locking"], 2, &["execution", "validation"]);
    refused(&["experiment"], 2, &["<FILE>"]);
    refused(&["completions", "cmd.exe"], 2, &["bash"]);
    refused(&["man", "rum"], 2, &["did you mean `run`?"]);
    refused(&["-v", "-q", "devices"], 2, &["cannot be used with"]);
}

/// Every flag that takes several values, whoever adds one: a value that is there twice is a slip, and spaces after commas are not.
#[test]
fn flags_for_several_values_take_each_once() {
    use clap::CommandFactory;
    let mut flags = 0;
    for command in experiments::args::Cli::command().get_subcommands() {
        let needed: &[&str] = match command.get_name() {
            "study" => &["execution"],
            "calibrate" => &["--profile", "cx4-edr"],
            _ => &[],
        };
        for flag in command.get_arguments().filter(|arg| arg.get_value_delimiter().is_some()) {
            let usual = flag.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
            let named = || flag.get_possible_values().first().map(|value| value.get_name().to_owned());
            let value = usual.or_else(named).unwrap_or("nic.atomic_unit".to_owned());
            let (long, twice) = (format!("--{}", flag.get_long().unwrap()), format!("{value}, {value}"));
            refused(&[&[command.get_name()], needed, &[&long, &twice]].concat(), 2, &[&long, "twice"]);
            flags += 1;
        }
    }
    assert!(flags >= 7, "{flags}");
    refused(
        &["tune", "--fabric", "sim:cx4-edr", "--protocol", "all,occ"],
        2,
        &["--protocol names occ twice"],
    );
    refused(&["study", "commit", "--skew", "0,0.0"], 2, &["--skew names 0 twice"]);
    refused(&["study", "commit", "--think", "2us,2000ns"], 2, &["--think names 2us twice"]);
}

/// Copies of a record need nodes of their own: told once, before a point is begun or a directory made.
#[test]
fn fewer_nodes_than_copies_are_refused_with_2() {
    for (command, words) in [
        (&["study", "logging"][..], "3 copies of each record need 3 nodes, there is 1"),
        (&["tune"], "3 copies of each record need 3 nodes, there is 1"),
        (&["run"], "3 copies of each record need 3 nodes, there is 1"),
    ] {
        let temp = tempfile::tempdir().unwrap();
        let out = temp.path().join("out");
        let more = ["--fabric", "sim:cx4-edr", "--nodes", "1", "--out", out.to_str().unwrap()];
        let args = [command, &more].concat();
        let output = run(&args);
        let talk = stderr(&output);
        assert_eq!(code(&output), 2, "{args:?}: {talk}");
        assert!(talk.contains(words) && !talk.contains("point"), "{args:?}: {talk}");
        assert_eq!(talk.matches("error:").count(), 1, "{args:?}: {talk}");
        assert!(!out.exists(), "{args:?} began");
    }
    let two = ["study", "logging", "--fabric", "sim:cx4-edr", "--nodes", "2"];
    refused(&two, 2, &["need 3 nodes, there are 2", "hint: use --nodes 3"]);
    refused(&["run", "--nodes", "2"], 2, &["there are 2", "hint: say --replicas 2 or --nodes 3"]);
}

/// Records that no datagram holds: told with the reason before anything runs, by every command that would run them.
#[test]
fn records_longer_than_a_datagram_are_refused_with_2() {
    let long = ["--fabric", "sim:cx4-edr", "--nodes", "2", "--replicas", "1", "--workload", "micro"];
    let long = [&long[..], &["--set", "records_per_thread=100", "--set", "payload_bytes=4096"]].concat();
    let says =
        ["fetch: two-sided asked for, but a record of 4096 B makes a message of 4136 B", "takes 4096 B here"];
    refused(&[&["run", "--plan", "two-sided"], &long[..]].concat(), 2, &says);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("long.yaml");
    let text = "question: why\nfabric: sim:cx4-edr\nworkload: micro\nset: {payload_bytes: 4096}\nreplicas: 1\n\
                grid: {plan: [one-sided, two-sided]}\n";
    std::fs::write(&file, text).unwrap();
    refused(&["experiment", file.to_str().unwrap()], 2, &["point 1 of the grid", says[0]]);
    // Sockets have nothing but messages: there is nothing to choose from.
    let tcp = ["tune", "--fabric", "sim:tcp-10g", "--workload", "micro", "--set", "payload_bytes=4096"];
    let tcp = [&tcp[..], &["--set", "records_per_thread=100"]].concat();
    refused(&tcp, 2, &["no plan can run here", says[0]]);
}

#[test]
fn a_table_that_fills_up_is_told_with_what_to_set() {
    let small = "items=100 customers_per_district=30 orders_per_district=30 order_room_per_district=1";
    let mut args =
        vec!["run", "--workload", "tpcc", "--fabric", "sim:cx4-edr", "--nodes", "2", "--threads", "1"];
    args.extend(["--replicas", "1", "--duration", "1ms", "--reserve-bytes", "0"]);
    args.extend(small.split(' ').flat_map(|set| ["--set", set]));
    let output = run(&args);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let (text, talk) = (stdout(&output), stderr(&output));
    assert!(text.contains("table-full"), "{text}");
    assert!(
        talk.contains("warning: a table was full") && talk.contains("--set order_room_per_district="),
        "{talk}"
    );
    assert!(talk.contains("--reserve-bytes N") && talk.contains("0 in the reserve of 0 B"), "{talk}");
    // With the usual reserve there is room for these.
    let mut usual = args.clone();
    let flag = usual.iter().position(|arg| *arg == "--reserve-bytes").unwrap();
    usual.drain(flag..flag + 2);
    let output = run(&usual);
    let (text, talk) = (stdout(&output), stderr(&output));
    assert!(text.contains("committed") && !talk.contains("a table was full"), "{text}{talk}");
    let last = args.len() - 1;
    args[last] = "order_room_per_district=1000";
    let output = run(&args);
    let (text, talk) = (stdout(&output), stderr(&output));
    assert!(text.contains("committed") && !talk.contains("a table was full"), "{text}{talk}");
}

/// A choice of protocols is one search each, and each protocol's best is told.
#[test]
fn the_tuner_chooses_a_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("tuned");
    let args = ["tune", "--fabric", "sim:cx4-edr", "--workload", "ycsb", "--set", "records_per_thread=1000"];
    let more = ["--protocol", "occ,nowait", "--json", "-", "--quiet", "--out", out.to_str().unwrap()];
    let output = run(&[&args[..], &more].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let told: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let rates: Vec<f64> = told["protocols"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["predicted_per_s"].as_f64().unwrap())
        .collect();
    assert_eq!(rates.len(), 2);
    assert!(rates[0] >= 0.99 * rates[1], "{rates:?}");
    assert_eq!(told["protocol"], told["protocols"][0]["protocol"]);
    refused(&["tune", "--protocol", "occ,ooc"], 2, &["did you mean `occ`?"]);
    refused(&["tune", "--protocol", ""], 2, &["no protocol of that name"]);
}

/// Before anything is opened: whichever fabrics this build has.
#[test]
fn the_peer_of_a_check_is_a_host_with_or_without_a_port() {
    let code = ["--code", "0123456789abcdef"];
    for (peer, says) in [
        ("[::1", "`[` without `]`"),
        ("[::1]7000", "after `]`"),
        ("[host]:7000", "no IPv6 address"),
        ("a:b:7000", "with a port write [IPv6]:port"),
        ("host:70000", "up to 65535"),
        ("host:", "up to 65535"),
        ("host:0", "port 0"),
        (":7000", "there is no host"),
        ("", "there is no host"),
    ] {
        refused(&[&["devices", "--check", peer][..], &code].concat(), 2, &["--check", says]);
    }
    refused(&["devices", "--listen", "[::1"], 2, &["--listen", "`[` without `]`"]);
    // These are understood; nobody listens there, or this machine has no device to ask with.
    for peer in ["[::1]:1", "::1", "127.0.0.1:1", "localhost", "localhost:1"] {
        let args = [&["devices", "--device", "no_such", "--check", peer][..], &code].concat();
        let output = run(&args);
        assert_eq!(output.status.code(), Some(3), "{peer}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn devices_lists_what_is_here() {
    let output = run(&["devices"]);
    assert_eq!(code(&output), 0);
    let text = stdout(&output);
    for part in ["loopback", "cx4-edr", "verbs:", "tcp", "Hardware counters:", "Machine:"] {
        assert!(text.contains(part), "no {part}:\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "colors without a terminal");
    // A command stays in one piece, to be copied; everything else fits.
    let wide: Vec<&str> =
        text.lines().filter(|line| line.chars().count() > 120 && !line.contains('`')).collect();
    assert!(wide.is_empty(), "{wide:#?}");

    let output = run(&["devices", "--json", "-"]);
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone on stdout");
    let described = list["profiles"].as_array().unwrap().iter().map(|p| p["about"].as_str().unwrap().len());
    assert!(described.max() > Some(200), "descriptions are whole: {list}");
    let fabrics = list["fabrics"].as_array().unwrap();
    let named =
        |name: &str| fabrics.iter().find(|f| f["name"] == name).unwrap_or_else(|| panic!("{name}: {list}"));
    assert_eq!(named("loopback")["works"], true);
    assert_eq!(named("tcp")["works"], true);
    assert!(fabrics.iter().all(|f| f["works"] == f["missing"].is_null()), "{list}");
    let counters = &list["hardware_counters"];
    assert_eq!(counters["available"].as_bool().unwrap(), counters["reason"].is_null());
}

#[test]
fn json_files_are_written_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("devices.json");
    let file = path.to_str().unwrap();
    let output = run(&["devices", "--json", file]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("loopback"), "the table is still shown");
    let before = std::fs::read(&path).unwrap();
    serde_json::from_slice::<serde_json::Value>(&before).unwrap();
    refused(&["devices", "--json", file], 2, &["devices.json exists", "nothing is ever overwritten"]);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    refused(&["devices", "--json", dir.path().to_str().unwrap()], 2, &["is a directory"]);
    refused(
        &["devices", "--json", "/dev/null/x.json"],
        2,
        &["/dev/null/x.json", "part of the path is a file"],
    );
    refused(&["devices", "--json", "/nowhere/at/all.json"], 2, &["/nowhere/at/all.json", "No such file"]);
    refused(&["devices", "--json", ""], 2, &["stdout"]);
}

#[test]
fn a_full_disk_is_told_and_exits_with_3() {
    let output = run(&["devices", "--json", "/dev/full"]);
    assert_eq!(code(&output), 3);
    assert!(stderr(&output).contains("cannot write /dev/full") && stderr(&output).contains("make room"));
    assert!(stdout(&output).contains("loopback"), "what could not be kept was at least shown");
    // A run alone keeps nothing: it does not say that it does.
    let few = ["--fabric", "sim:cx4-edr", "--duration", "20us", "--set", "accounts_per_thread=100"];
    let output = run(&[&["run"], &few[..], &["--json", "/dev/full"]].concat());
    assert_eq!(code(&output), 3);
    assert!(stdout(&output).contains("isolation: "), "{}", stdout(&output));
    let said = stderr(&output);
    assert!(said.contains("the result is shown above") && !said.contains("kept"), "{said}");
    for args in [["devices", "--json", "-"].as_slice(), &["devices"], &["man"], &["completions", "bash"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = doorbell().args(args).stdout(full).output().unwrap();
        assert_eq!(code(&output), 3, "{args:?}");
        assert!(stderr(&output).contains("cannot write to stdout"), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_closed_pipe_ends_in_silence() {
    for args in [
        ["devices"].as_slice(),
        &["devices", "--json", "-"],
        &["man"],
        &["completions", "zsh"],
        &["--help"],
        &["run", "--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = doorbell().args(args).stdout(writer).output().unwrap();
        assert_eq!((code(&output), stderr(&output).as_str()), (0, ""), "{args:?}");
    }
    // And with nobody to hear the talk either.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = doorbell().args(["man", "rum"]).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

/// `doorbell experiment … | head`: whoever stops reading costs no point, and makes no failure.
#[test]
fn a_closed_pipe_costs_no_measured_point() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("small.yaml"), dir.path().join("out"));
    let text = "question: Who reads this?\nfabric: sim:cx4-edr\nset: {accounts_per_thread: 200}\nduration: 50us\n\
                nodes: 3\ngrid: {coroutines: [1, 2, 4, 8]}\n";
    std::fs::write(&file, text).unwrap();
    let experiment = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = doorbell();
        command.arg("experiment").arg(&file).arg("--out").arg(&out).stdout(writer);
        let output = command.output().unwrap();
        let talk = stderr(&output);
        assert_eq!(code(&output), 0, "{talk}");
        assert!(!["panicked", "failed", "error"].iter().any(|word| talk.contains(word)), "{talk}");
        let record = std::fs::read_to_string(out.join("run.json")).unwrap();
        let record: serde_json::Value = serde_json::from_str(&record).unwrap();
        assert_eq!((&record["points_done"], &record["complete"]), (&4.into(), &true.into()), "{record:#}");
        std::fs::read_to_string(out.join("points.csv")).unwrap()
    };
    let points = experiment();
    assert_eq!(points.lines().count(), 1 + 4);
    assert_eq!(experiment(), points, "nothing is left to measure");
}

#[test]
fn completions_and_pages_name_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert_eq!(code(&output), 0);
        let script = stdout(&output);
        assert!(COMMANDS.iter().all(|command| script.contains(command)), "{shell}");
    }
    let page = stdout(&run(&["man"]));
    assert!(page.contains(".TH doorbell") && COMMANDS.iter().all(|command| page.contains(command)), "{page}");
    for command in COMMANDS {
        let page = stdout(&run(&["man", command]));
        assert!(page.contains(".TH") && page.contains(command), "{command}: {page}");
    }
}

#[test]
fn fabrics_that_do_not_work_here_exit_with_3_and_name_one_that_does() {
    let asked = ["run", "--fabric", "tcp", "--plan", "drtm-h"];
    refused(&asked, 2, &["plan `drtm-h` cannot run here", "tcp", "one-sided"]);
    // A copy of the preset, as a file: which of the two is to be changed.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("my.plan.yaml");
    std::fs::write(&file, include_str!("../../phases/plans/drtm-h.plan.yaml")).expect("written");
    let file = file.to_str().expect("UTF-8");
    let named = format!("plan `drtm-h` of {file} cannot run here");
    refused(&["run", "--fabric", "tcp", "--plan", file], 2, &[&named, "tcp", "one-sided"]);
    refused(
        &["characterize", "--fabric", "tcp", "--bench", "signal"],
        2,
        &["benchmark `signal` needs one-sided verbs, which tcp has not"],
    );
    refused(&["tune", "--fabric", "tcp"], 2, &["no profile of tcp can be fitted", "--profile FILE"]);
    refused(
        &["run", "--fabric", "verbs:mlx5_77"],
        3,
        &["verbs:mlx5_77", "RDMA device", "loopback, tcp and sim:PROFILE work everywhere"],
    );
    refused(&["run", "--fabric", "sim:cx4-edt"], 2, &["cx4-edt", "did you mean `cx4-edr`?"]);
    refused(
        &["run", "--fabric", "sim:/nowhere/a.profile.yaml"],
        2,
        &["/nowhere/a.profile.yaml", "No such file"],
    );
    refused(&["run", "--nodes", "2"], 2, &["3 copies of each record need 3 nodes"]);
}

#[test]
fn a_profile_that_misses_a_field_is_told_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("half.profile.yaml");
    std::fs::write(&path, "name: half\ndescription: a test\nnic: {}\n").unwrap();
    let fabric = format!("sim:{}", path.display());
    refused(
        &["run", "--fabric", &fabric],
        2,
        &["half.profile.yaml:3:1: nic: missing field", "╭", "characterize"],
    );
}

#[test]
fn mistakes_in_experiment_files_have_file_line_and_column() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good.yaml");
    std::fs::write(&good, "question: why\n").unwrap();
    let bad = dir.path().join("bad.yaml");
    for (text, says) in [
        ("question: why\nnods: 3\n", ["bad.yaml:2:1", "did you mean `nodes`?"]),
        (
            "question: why\nnodes: 3\nnodes: 3\n",
            ["bad.yaml:3:1: duplicate mapping key: nodes\n", "hint: line 2 has it already"],
        ),
        ("question: why\nduration: 10 parsecs\n", ["bad.yaml:2:11", "2 │ duration: 10 parsecs"]),
        ("question: why\nnodes: 0\n", ["bad.yaml:2:8", "at least 1 node"]),
        ("question: why\nthreads: 1000000000\n", ["bad.yaml:2:10", "the limit is 512 threads"]),
        ("question: [why\n", ["bad.yaml:", ""]),
        ("", ["bad.yaml is empty", ""]),
        ("# question: why\n\n", ["bad.yaml is empty", ""]),
        (
            "fabric: loopback\n",
            ["bad.yaml:1:1: an experiment needs a question", "hint: say what it answers, as in `question:"],
        ),
        ("question: why\nnodes: 2\n", ["bad.yaml:2:8", "hint: say `replicas: 2` or `nodes: 3`"]),
        ("question: [why]\n", ["bad.yaml:1:", "question: expected string"]),
        (
            "question: why\nfabric: verbs:mlx5_77\n",
            ["fabric verbs:mlx5_77 does not work here", "loopback, tcp and sim:PROFILE work everywhere"],
        ),
    ] {
        std::fs::write(&bad, text).unwrap();
        let exit = if text.contains("verbs") { 3 } else { 2 };
        refused(&["experiment", good.to_str().unwrap(), bad.to_str().unwrap()], exit, &says);
    }
    refused(&["experiment", "/nowhere/a.yaml"], 2, &["cannot read /nowhere/a.yaml", "No such file"]);
    refused(&["experiment", dir.path().to_str().unwrap()], 2, &["cannot read", "directory"]);
    std::fs::write(&bad, b"question: \xff\xfe\n").unwrap();
    refused(&["experiment", bad.to_str().unwrap()], 2, &["bad.yaml:1:11: bytes that are not text", "UTF-8"]);
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::copy(&good, other.join("good.yaml")).unwrap();
    refused(
        &["experiment", good.to_str().unwrap(), other.join("good.yaml").to_str().unwrap()],
        2,
        &["would share"],
    );
}

#[test]
fn coroutines_of_the_command_line_override_those_of_a_plan() {
    let dir = tempfile::tempdir().unwrap();
    let plan = dir.path().join("mine.plan.yaml");
    std::fs::write(
        &plan,
        "name: mine\nchosen_by: a person\nwhy: a test\nplan: {coroutines: 4, fetch: one-sided, lock: one-sided, \
         validate: one-sided, log: one-sided, install: one-sided, unlock: one-sided}\n",
    )
    .unwrap();
    let ran = |plan: &str, out: &str, coroutines: &[&str]| {
        let out = dir.path().join(out);
        let fixed = ["--fabric", "sim:cx4-edr", "--set", "accounts_per_thread=200", "--duration", "100us"];
        let output = doorbell()
            .args(["run", "--plan", plan, "--out", out.to_str().unwrap()])
            .args(fixed)
            .args(coroutines)
            .output()
            .unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let record = std::fs::read_to_string(out.join("run.json")).unwrap();
        let record: serde_json::Value = serde_json::from_str(&record).unwrap();
        (record["spec"]["plan"]["coroutines"].as_u64(), record["notes"].to_string())
    };
    let file = plan.to_str().unwrap();
    let (own, notes) = ran(file, "own", &[]);
    assert!(own == Some(4) && !notes.contains("asked for"), "{own:?} {notes}");
    let (given, notes) = ran(file, "given", &["--coroutines", "6"]);
    assert!(
        given == Some(6) && notes.contains("mine says 4 coroutines per thread; 6 were asked for"),
        "{notes}"
    );
    let (tuned, notes) = ran("tuned", "tuned", &["--coroutines", "3"]);
    assert!(tuned == Some(3) && notes.contains("with 3 coroutines per thread only"), "{notes}");
    let (preset, _) = ran("drtm-h", "cold", &["--cold-cache"]);
    assert_eq!(preset, Some(8));
    let record = std::fs::read_to_string(dir.path().join("cold/run.json")).unwrap();
    assert!(record.contains("started cold"), "{record}");
}

#[test]
fn a_study_varies_what_it_is_asked_to_and_draws_it() {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("study");
    let out = out.to_str().unwrap();
    let asked = [
        "study",
        "execution",
        "--fabric",
        "sim:cx4-edr",
        "--nodes",
        "2",
        "--coroutines",
        "2",
        "--duration",
        "50us",
    ];
    let varied = ["--payload", "16,256", "--think", "0us,2us", "--json", "-", "--out", out];
    let output = run(&[&asked[..], &varied[..]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let points = told["points"].as_array().unwrap();
    assert_eq!(points.len(), 4 * 2 * 2 * 2, "variants, coroutines, payloads, loads");
    let rate = |payload: u64, think: u64| -> f64 {
        let is = |p: &&serde_json::Value| {
            p["variant"] == "one-sided-cache"
                && p["coroutines"] == 2
                && p["payload_bytes"] == payload
                && p["think_us"] == think
        };
        points.iter().find(is).unwrap()["rate_per_s"].as_f64().unwrap()
    };
    assert!(rate(16, 0) > rate(256, 0) && rate(16, 0) > rate(16, 2));
    let again = run(&[&asked[..], &varied[..4], &["--out", out]].concat());
    let told = stdout(&again);
    for part in ["2 nodes of 1 thread; 4 records of 16 or 256 B an operation", "rates are of whole cycles"] {
        assert!(told.contains(part), "no {part} in {told}");
    }
    let page = temp.path().join("page");
    let output = run(&["report", out, "--out", page.to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let drawn = std::fs::read_to_string(page.join("figures/study-study.svg")).unwrap();
    for part in ["Rate by payload, bytes a record", "Rate by what a core computes", "one-sided-cache"] {
        assert!(drawn.contains(part), "no {part}");
    }
    refused(&["study", "commit", "--skew", "-1"], 2, &["an exponent from 0"]);
    refused(&["study", "commit", "--payload", "12"], 2, &["a multiple of 8"]);
    refused(&["study", "commit", "--think", "2"], 2, &["2 of what?"]);
    refused(
        &["study", "execution", "--fabric", "sim:cx4-edr", "--payload", "8192"],
        2,
        &["8192 B", "no variant"],
    );
}

#[test]
fn a_page_is_told_as_json_and_one_without_points_is_a_failure() {
    let temp = tempfile::tempdir().unwrap();
    let (out, page) = (temp.path().join("run"), temp.path().join("page"));
    let [out, page] = [&out, &page].map(|path| path.to_str().unwrap().to_owned());
    let asked = ["run", "--fabric", "sim:cx4-edr", "--duration", "50us", "--set", "accounts_per_thread=200"];
    assert_eq!(code(&run(&[&asked[..], &["--out", &out]].concat())), 0);
    let output = run(&["report", &out, "--out", &page, "--json", "-"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        told["page"].as_str().unwrap().ends_with("report.html")
            && !told["figures"].as_array().unwrap().is_empty()
    );
    for file in ["points.csv", "phases.csv", "aborts.csv"] {
        std::fs::remove_file(Path::new(&out).join(file)).unwrap();
    }
    let output = run(&["report", &out, "--out", &page]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("no point has been measured"), "{}", stderr(&output));
}

#[test]
fn help_that_cannot_be_written_is_not_a_success() {
    let full = std::fs::File::create("/dev/full").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_doorbell"));
    let ended = command.args(["run", "--help"]).stdout(full).stderr(std::process::Stdio::null()).status();
    assert_eq!(ended.unwrap().code(), Some(3));
}

#[test]
fn the_examples_of_experiments_run() {
    let help = stdout(&run(&["experiment", "--help"]));
    let dir = tempfile::tempdir().unwrap();
    let examples: Vec<String> = help
        .split("\n    question:")
        .skip(1)
        .map(|rest| {
            let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with(' ')).skip(1);
            let first = format!("question:{}\n", rest.lines().next().unwrap());
            lines.fold(first, |file, line| file + line.strip_prefix("    ").unwrap_or(line) + "\n")
        })
        .collect();
    assert!(examples.len() == 2 && examples[1].contains("kind: primitive"), "{help}");
    for (number, file) in examples.iter().enumerate() {
        let path = dir.path().join(format!("why{number}.yaml"));
        std::fs::write(&path, file).unwrap();
        let out = dir.path().join(format!("out{number}"));
        let output = run(&["experiment", path.to_str().unwrap(), "--out", out.to_str().unwrap()]);
        assert_eq!(code(&output), 0, "{file}{}", stderr(&output));
    }
    assert!(stdout(&run(&["man", "experiment"])).contains("question: Which primitive should lock"));
}

/// The script that boots virtual machines is what hardware's owners without hardware meet.
#[test]
fn a_folder_that_is_not_there_is_named_and_not_answered_with_usage() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/softroce/vm");
    let output = std::process::Command::new("bash").arg(script).args(["NO_SUCH_DIR", "--", "true"]).output();
    let output = output.expect("bash");
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("there is no directory NO_SUCH_DIR"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("usage:"), "{}", stderr(&output));
}

#[test]
fn points_that_fail_alike_are_warned_of_once_with_what_lengthens_them() {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("out");
    let args =
        ["study", "commit", "--fabric", "sim:cx4-edr", "--coroutines", "2", "--out", out.to_str().unwrap()];
    let output = run(&[&args[..], &["--duration", "5us"]].concat());
    let said = stderr(&output);
    assert_eq!(code(&output), 1, "{said}");
    // The first at once, since a sweep may take hours, and all of them in the end.
    assert_eq!(said.matches("warning: ").count(), 2, "{said}");
    assert!(said.contains("8 points failed: nothing ended within 5"), "{said}");
    assert!(
        said.contains("or none: `study` and `characterize` then measure such points for longer"),
        "{said}"
    );
}

#[test]
fn an_explicit_duration_is_another_run_than_the_usual_and_says_what_differs() {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("out");
    let usual = [
        "run",
        "--fabric",
        "sim:cx4-edr",
        "--nodes",
        "2",
        "--replicas",
        "1",
        "--set",
        "accounts_per_thread=100",
    ];
    let usual = [&usual[..], &["--max-duration", "3ms", "--out", out.to_str().unwrap()]].concat();
    assert_eq!(code(&run(&usual)), 0);
    let exact: Vec<&str> =
        usual.iter().map(|word| if *word == "--max-duration" { "--duration" } else { *word }).collect();
    let output = run(&exact);
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("--precision was 1% (as usual without --duration), and is not given now")
    );
    // The same measurement in other words is the same run.
    let output = run(&[&usual[..], &["--duration", "2ms", "--precision", "1%"]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("nothing to measure"), "{}", stderr(&output));
}
