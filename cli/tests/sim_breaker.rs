//! `sim breaker`: what the policies are known to do, the figures, the files and the errors.

mod program;

use std::{
    fs,
    path::{Path, PathBuf},
};

use program::{Outcome, wheelhouse};
use serde_json::Value;

const POLICIES: &str = "default,error-rate,consecutive,throttle-sre,throttle-go-zero-2022,\
    throttle-go-zero,adaptive,model-go-zero,model-gobreaker,model-hystrix,model-resilience4j,\
    model-polly,model-failsafe-rs,model-recloser";

fn sim(args: &[&str]) -> Outcome {
    let mut all = vec!["sim", "breaker"];
    all.extend(args);
    wheelhouse(&all, b"")
}

/// The objects that a run prints.
#[track_caller]
fn objects(args: &[&str]) -> Vec<Value> {
    let mut all = args.to_vec();
    all.push("--json");
    let run = sim(&all);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}");
    let lines = run.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect()
}

#[track_caller]
fn object(args: &[&str]) -> Value {
    let mut all = objects(args);
    assert_eq!(all.len(), 1, "{args:?}");
    all.remove(0)
}

#[track_caller]
fn number(object: &Value, key: &str) -> f64 {
    let number = object[key].as_f64();
    number.unwrap_or_else(|| panic!("{key} is no number in {object}"))
}

/// A file of this test's own.
fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim_breaker");
    fs::create_dir_all(&folder).expect("the folder of the tests can be made");
    folder.join(name)
}

fn scenario(name: &str, text: &str) -> String {
    let path = file(name);
    fs::write(&path, text).expect("a file can be written");
    path.to_str().expect("the path is text").to_owned()
}

#[test]
fn models_have_the_consequences_known_of_their_libraries() {
    let outage = |policy| object(&["--policy", policy, "--scenario", "outage-30s"]);
    let gobreaker = outage("model-gobreaker");
    assert_eq!(gobreaker["bad_before_trip"], 6);
    assert_eq!(outage("model-resilience4j")["bad_before_trip"], 50);
    assert_eq!(outage("model-recloser")["bad_before_trip"], 50);
    assert_eq!(outage("model-failsafe-rs")["bad_before_trip"], 5);
    let sent = number(&outage("model-go-zero"), "bad_sent");
    assert!((4_800.0..7_200.0).contains(&sent), "{sent}");
    // It comes back a minute after the trip at the earliest.
    assert!(number(&gobreaker, "time_to_95_ms") > 29_000.0);
}

#[test]
fn the_default_breaker_keeps_its_promises() {
    for rps in [10.0, 100.0, 1000.0] {
        for seed in ["1", "2", "3"] {
            let rate = rps.to_string();
            let run = object(&[
                "--policy=default",
                "--scenario=outage-after-1h",
                "--rps",
                &rate,
                "--seed",
                seed,
            ]);
            assert!(number(&run, "bad_before_trip") <= 20.0, "{run}");
            assert!(
                number(&run, "bad_sent") <= 20.0 + rps * 0.005 + 30.0,
                "{run}"
            );
            assert!(number(&run, "time_to_95_ms") <= 2000.0, "{run}");
            let dropped = number(&run, "good_dropped_after_heal");
            assert!(dropped <= 1.5 * rps, "{run}");
        }
    }
    let run = object(&["--policy=default", "--scenario=constant-20"]);
    assert_eq!(run["false_rejects"], 0);
    assert_eq!(run["time_to_trip_ms"], Value::Null);
}

#[test]
fn r41_throttles_at_forty_percent_errors() {
    let all = objects(&[
        "--compare=adaptive,throttle-sre,throttle-go-zero,model-go-zero",
        "--scenario=constant-40",
    ]);
    let served: Vec<_> = all
        .iter()
        .map(|run| number(run, "good_served") / number(run, "good_possible"))
        .collect();
    assert!(served[0] >= 0.85 && served[1] >= 0.85, "{served:?}");
    // The collapse that counting one's own rejections leads to.
    assert!(served[2] < 0.1 && served[3] < 0.1, "{served:?}");
}

#[test]
fn r40_calls_that_reach_a_backend_dead_from_the_first_call() {
    let dead = scenario("dead.json", r#"{"phases":[{"for":"10s","error_rate":1}]}"#);
    for (policy, expected) in [("throttle-go-zero-2022", 347.0), ("throttle-sre", 9.8)] {
        let sent = (1..=20).map(|seed: u32| {
            let seed = seed.to_string();
            let run = object(&["--policy", policy, "--scenario", &dead, "--seed", &seed]);
            number(&run, "bad_sent")
        });
        let mean = sent.sum::<f64>() / 20.0;
        let range = expected * 0.8..expected * 1.2;
        assert!(range.contains(&mean), "{policy}: {mean}");
    }
}

#[test]
fn every_policy_gets_the_same_calls_in_every_scenario() {
    for name in [
        "outage-1s",
        "brownout",
        "hang",
        "flapping",
        "cold-heal",
        "capacity-3x",
        "sparse",
        "cancellations",
    ] {
        let all = objects(&["--compare", POLICIES, "--scenario", name, "--rps", "100"]);
        assert_eq!(all.len(), 14);
        for run in &all {
            for key in ["scenario", "rps", "seed", "offered", "good_possible"] {
                assert_eq!(run[key], all[0][key], "{key} in {name}");
            }
            let served = number(run, "good_served");
            assert!(served <= number(run, "good_possible"), "{run}");
        }
        let names: Vec<_> = all
            .iter()
            .filter_map(|run| run["policy"].as_str())
            .collect();
        assert_eq!(names.join(","), POLICIES);
    }
    let sparse = object(&["--policy=default", "--scenario=sparse", "--rps=5000"]);
    assert_eq!(
        (&sparse["rps"], &sparse["offered"]),
        (&0.2.into(), &30.into())
    );
}

#[test]
fn cancelled_calls_are_no_failures() {
    let run = object(&["--policy=default", "--scenario=cancellations"]);
    assert_eq!(
        (&run["bad_sent"], &run["false_rejects"]),
        (&0.into(), &0.into())
    );
    assert_eq!(run["good_served"], run["good_possible"]);
}

#[test]
fn keys_come_in_their_order_and_what_is_not_there_is_null() {
    let run = sim(&[
        "--policy=error-rate",
        "--scenario=constant-20",
        "--rps=2.5",
        "--seed=7",
        "--json",
    ]);
    let figures = object(&[
        "--policy=error-rate",
        "--scenario=constant-20",
        "--rps=2.5",
        "--seed=7",
    ]);
    let possible = &figures["good_possible"];
    let sent = &figures["bad_sent"];
    assert_eq!(
        run.stdout,
        format!(
            "{{\"policy\":\"error-rate\",\"scenario\":\"constant-20\",\"rps\":2.5,\"seed\":7,\
             \"offered\":9000,\"good_possible\":{possible},\"good_served\":{possible},\
             \"bad_sent\":{sent},\"bad_before_trip\":null,\"time_to_trip_ms\":null,\
             \"time_to_95_ms\":null,\"good_dropped_after_heal\":0,\"false_rejects\":0,\
             \"peak_in_flight_at_heal\":null,\"probes\":0,\"transitions\":0}}\n"
        )
    );
}

#[test]
fn a_seed_says_everything() {
    let run = |seed| {
        sim(&[
            "--policy=model-go-zero",
            "--scenario=brownout",
            "--seed",
            seed,
        ])
    };
    assert_eq!(run("1"), run("1"));
    assert_ne!(run("1").stdout, run("2").stdout);
}

#[test]
fn settings_change_what_a_policy_does() {
    let outage = |set: &[&str]| {
        let mut args = vec!["--policy=model-gobreaker", "--scenario=outage-30s"];
        args.extend(set);
        object(&args)
    };
    assert_eq!(outage(&["--set", "tolerated=9"])["bad_before_trip"], 10);
    let soon = outage(&["--set=timeout=1s", "--set", "tolerated=0"]);
    assert!(number(&soon, "time_to_95_ms") <= 1000.0, "{soon}");
    // A setting goes to each policy that has it.
    let both = objects(&[
        "--compare=consecutive,model-recloser",
        "--scenario=outage-30s",
        "--set=failures=3",
    ]);
    assert_eq!(both[0]["bad_before_trip"], 3);
    assert_eq!(both[1]["bad_before_trip"], 50);
}

#[test]
fn a_file_is_a_scenario() {
    let path = scenario(
        "bursts.json",
        r#"{"arrivals": "bursty", "phases": [
            {"for": "10s"},
            {"for": "10s", "hang": true, "timeout": "200ms"},
            {"for": "10s", "latency": "20ms", "capacity": 5}
        ]}"#,
    );
    let run = object(&["--policy=consecutive", "--scenario", &path, "--rps=100"]);
    assert_eq!(run["offered"], 3000);
    // The calls of two bursts are in flight when the first of them is given up.
    assert_eq!(run["bad_before_trip"], 10);
    assert_eq!(run["time_to_trip_ms"], 200);
    assert_eq!(run["bad_sent"], 20);
}

#[test]
fn a_table_has_a_column_for_each_policy() {
    let run = sim(&[
        "--compare=consecutive,model-gobreaker",
        "--scenario=outage-1s",
    ]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let mut lines = run.stdout.lines();
    assert_eq!(
        lines.next(),
        Some("outage-1s at 1000 calls a second, seed 1")
    );
    let lines: Vec<Vec<_>> = lines
        .skip(1)
        .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).collect())
        .collect();
    let cells = |line: &[&str]| {
        line.iter()
            .map(|cell| cell.trim().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(cells(&lines[0]), ["consecutive", "model-gobreaker"]);
    assert_eq!(cells(&lines[1]), ["offered", "121,000", "121,000"]);
    assert_eq!(cells(&lines[5]), ["bad before trip", "6", "6"]);
    assert_eq!(lines.len(), 13);
}

#[test]
fn a_plot_has_a_line_for_each_policy_in_both_panels() {
    let path = file("plot.svg");
    let shown = path.to_str().expect("the path is text");
    let run = sim(&[
        "--compare=default,adaptive,model-go-zero",
        "--scenario=outage-30s",
        "--rps=100",
        "--plot",
        shown,
    ]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let svg = fs::read_to_string(&path).expect("the plot is there");
    let document = roxmltree::Document::parse(&svg).expect("the plot is XML");
    let class = |name: &str| {
        let nodes = document.descendants();
        nodes
            .filter(|node| node.attribute("class") == Some(name))
            .count()
    };
    // In each panel, and in the legend.
    assert_eq!(class("line"), 9);
    assert_eq!(class("sick"), 1);
    let says = |text| document.descendants().any(|node| node.text() == Some(text));
    assert!(says("3 policies compared"));
    assert!(says("outage-30s at 100 calls a second, seed 1"));
    assert!(says("model-go-zero"));
    for path in document
        .descendants()
        .filter_map(|node| node.attribute("d"))
    {
        assert!(!path.contains("NaN") && !path.contains("inf"), "{path}");
    }
}

#[test]
fn usage_errors_are_one_line_and_exit_code_2() {
    let bad = scenario(
        "bad.json",
        "{\"phases\":[{\"for\":\"1s\",\n \"latency\":5}]}",
    );
    for (args, message) in [
        (
            &["--policy=defualt", "--scenario=hang"][..],
            "--policy: \"defualt\" is not a policy (default, error-rate, consecutive, ",
        ),
        (
            &["--compare=default,hystrix", "--scenario=hang"],
            "--compare: \"hystrix\" is not a policy (default, ",
        ),
        (
            &["--compare=default,default", "--scenario=hang"],
            "--compare: default is given twice",
        ),
        (
            &["--policy=default", "--scenario=outge"],
            "--scenario: \"outge\" is not a scenario (outage-1s, outage-30s, ",
        ),
        (
            &["--policy=default", "--scenario", &bad],
            "bad.json: invalid type: integer `5`, expected a duration with its unit, 0s to \
             366days, as in \"5ms\" at line 2 column 12",
        ),
        (
            &["--policy=default", "--scenario=hang", "--rps=0"],
            "--rps: \"0\" is not a number of calls a second in 0.001..=10000000",
        ),
        (
            &["--policy=default", "--scenario=hang", "--seed=-1"],
            "--seed: \"-1\" is not a whole number in 0..=18446744073709551615",
        ),
        (
            &[
                "--policy=consecutive",
                "--scenario=hang",
                "--set=cooldown=1s",
            ],
            "--set: there is no setting \"cooldown\"; consecutive has failures=6, interval=0s, \
             cool-down=1m, ",
        ),
        (
            &[
                "--policy=consecutive",
                "--scenario=hang",
                "--set=cool-down=1",
            ],
            "--set: cool-down: \"1\" is not a duration in 0s..=1year",
        ),
        (
            &[
                "--policy=model-polly",
                "--scenario=hang",
                "--set=failure-ratio=10",
            ],
            "--set: failure-ratio: \"10\" is not a number in 0..=1",
        ),
        (
            &["--policy=default", "--scenario=hang", "--set", "window"],
            "--set: \"window\" is not of the form key=value",
        ),
        (
            &[
                "--policy=default",
                "--scenario=hang",
                "--plot=/nowhere/at/all.svg",
            ],
            "--plot: /nowhere/at/all.svg: ",
        ),
        (
            &["--scenario=hang"],
            "the following required arguments were not provided: --policy <NAME>",
        ),
        (
            &["--policy=default"],
            "the following required arguments were not provided: --scenario",
        ),
    ] {
        let run = sim(args);
        assert!(run.stderr.contains(message), "{args:?}: {}", run.stderr);
        assert!(
            run.stderr.starts_with("error: "),
            "{args:?}: {}",
            run.stderr
        );
        assert_eq!(run.stderr.lines().count(), 1, "{args:?}: {}", run.stderr);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?}");
    }
}

/// The figure that is promised holds for a release build.
#[test]
fn it_drives_millions_of_calls_a_second() {
    let begin = std::time::Instant::now();
    let run = object(&["--policy=default", "--scenario=constant-20"]);
    let rate = number(&run, "offered") / begin.elapsed().as_secs_f64();
    println!("{:.1} million calls a second", rate / 1e6);
    let least = if cfg!(debug_assertions) { 0.1e6 } else { 2e6 };
    assert!(rate > least, "{rate}");
}
