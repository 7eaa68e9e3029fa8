//! `load` for real, on a small scale: the counts are exact, the times are only bounded.

mod program;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use program::wheelhouse;
use serde_json::Value;

const SMALL: [&str; 7] = [
    "load", "--tasks", "2000", "--over", "200ms", "--after", "50ms",
];

fn small(more: &[&str]) -> Vec<String> {
    SMALL
        .iter()
        .chain(more)
        .map(|arg| (*arg).to_owned())
        .collect()
}

#[track_caller]
fn run(more: &[&str]) -> String {
    let args = small(more);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let run = wheelhouse(&args, b"");
    assert_eq!(
        (run.code, run.stderr.as_str()),
        (Some(0), ""),
        "{more:?}: {}",
        run.stdout
    );
    run.stdout
}

#[test]
fn json_is_one_line_with_its_keys_in_order() {
    for more in [&["--json"][..], &["--json", "--scheduler"]] {
        json_keys(&run(more));
    }
}

#[track_caller]
fn json_keys(line: &str) {
    assert_eq!(line.lines().count(), 1);
    assert!(line.ends_with("}\n"));
    let keys: Vec<&str> = line
        .trim_start_matches('{')
        .split(',')
        .map(|pair| pair.split(':').next().unwrap().trim_matches('"'))
        .collect();
    assert_eq!(
        keys,
        [
            "tasks",
            "fired",
            "early",
            "lost",
            "p50_us",
            "p90_us",
            "p99_us",
            "p999_us",
            "max_us",
            "schedule_mops",
            "bytes_per_task",
            "cpu_s",
            "wakeups"
        ]
    );
}

#[test]
fn every_executor_and_the_scheduler_fire_every_task_once_and_none_early() {
    for executor in [
        "--executor=inline",
        "--executor=threads=2",
        "--executor=tokio",
        "--executor=tokio-blocking",
        "--scheduler",
    ] {
        let json: Value = serde_json::from_str(&run(&["--json", executor])).unwrap();
        for (key, count) in [("tasks", 2000), ("fired", 2000), ("early", 0), ("lost", 0)] {
            assert_eq!(json[key], count, "{executor}: {json}");
        }
        let times: Vec<u64> = ["p50_us", "p90_us", "p99_us", "p999_us", "max_us"]
            .map(|key| json[key].as_u64().unwrap())
            .into();
        assert!(times.is_sorted(), "{executor}: {json}");
        assert!(
            json["schedule_mops"].as_f64().unwrap() > 0.0,
            "{executor}: {json}"
        );
        if cfg!(target_os = "linux") {
            assert!(json["cpu_s"].as_f64().unwrap() < 20.0, "{executor}: {json}");
        }
        assert!(json["bytes_per_task"].is_null(), "{executor}: {json}");
        assert!(json["wakeups"].as_u64().unwrap() > 0, "{executor}: {json}");
    }
}

#[test]
fn the_report_has_the_counts_and_a_histogram() {
    let report = run(&[]);
    assert!(report.contains("2,000, early = 0, lost = 0"), "{report}");
    for name in [
        "p50 ",
        "p90 ",
        "p99 ",
        "p99.9 ",
        "max ",
        "– bytes per task (not measured below 100,000 tasks)",
        "wake-ups",
    ] {
        assert!(report.contains(name), "{name} is not in:\n{report}");
    }
    let (_, histogram) = report.split_once("\n\n").unwrap();
    // Each row is: from – to, bar, share, count, and the percentiles that fall into it.
    let counts: u64 = histogram
        .lines()
        .map(|row| {
            let (_, after) = row.rsplit_once('%').unwrap();
            after
                .split_whitespace()
                .next()
                .unwrap()
                .replace(',', "")
                .parse::<u64>()
                .unwrap()
        })
        .sum();
    assert_eq!(counts, 2000, "{histogram}");
    assert!(histogram.contains('█'), "{histogram}");
    assert!(
        histogram.lines().all(|row| row.chars().count() <= 80),
        "{histogram}"
    );
    assert!(
        !histogram.contains('\x1b'),
        "colours go to terminals only:\n{histogram}"
    );
}

#[test]
fn the_report_says_what_it_ran_on() {
    assert!(run(&[]).contains("due 50ms to 250ms after the call, interval 1ms, executor inline\n"));
    let report = run(&["--scheduler", "--interval=5ms"]);
    assert!(
        report.contains("due 50ms to 250ms after the call, interval 5ms, on the scheduler\n"),
        "{report}"
    );
    assert!(report.contains("2,000, early = 0, lost = 0"), "{report}");
}

#[test]
fn one_task_at_once_is_enough() {
    let args = ["load", "--tasks=1", "--over=0s", "--after=0s", "--json"];
    for args in [&args[..], &[&args[..], &["--scheduler"]].concat()] {
        let run = wheelhouse(args, b"");
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
        assert!(
            run.stdout
                .starts_with("{\"tasks\":1,\"fired\":1,\"early\":0,\"lost\":0,")
        );
    }
}

#[test]
fn the_plot_is_well_formed_and_names_what_it_shows() {
    let path = folder("well_formed").join("lateness.svg");
    run(&["--plot", path.to_str().unwrap()]);
    let svg = fs::read_to_string(&path).unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let root = document.root_element();
    assert_eq!(root.tag_name().name(), "svg");
    assert_eq!(
        root.tag_name().namespace(),
        Some("http://www.w3.org/2000/svg")
    );
    let texts: Vec<&str> = root
        .descendants()
        .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "text")))
        .filter_map(|node| node.text())
        .collect();
    for start in [
        "Lateness of 2,000 tasks",
        "due 50ms to 250ms",
        "p50 ",
        "p90 ",
        "p99 ",
        "p99.9 ",
        "max ",
    ] {
        assert!(
            texts.iter().any(|text| text.starts_with(start)),
            "{start} is not in {texts:?}"
        );
    }
    let number = |value: Option<&str>| value.unwrap().parse::<f64>().unwrap();
    let bars: Vec<_> = root
        .descendants()
        .filter(|node| node.attribute("class") == Some("bar"))
        .collect();
    assert!(!bars.is_empty());
    for bar in bars {
        let [x, y, width, height] =
            ["x", "y", "width", "height"].map(|name| number(bar.attribute(name)));
        assert!(
            x >= 0.0 && x + width <= 960.0 && y >= 0.0 && y + height <= 540.0,
            "{bar:?}"
        );
    }
}

/// An empty folder for one test.
fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn an_old_plot_stays_until_the_run_is_over() {
    let folder = folder("old_plot");
    let path = folder.join("old.svg");
    fs::write(&path, "old").unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_wheelhouse"))
        .args(["load", "--tasks=1", "--after=1h", "--plot"])
        .arg(&path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Long enough for a truncation before the run to be seen; a slow start can only hide it.
    thread::sleep(Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");

    run(&["--plot", path.to_str().unwrap()]);
    assert!(fs::read_to_string(&path).unwrap().ends_with("</svg>\n"));
    assert_eq!(
        fs::read_dir(&folder).unwrap().count(),
        1,
        "nothing else is left"
    );
}

#[cfg(unix)]
#[test]
fn a_plot_goes_through_links_and_to_streams() {
    let folder = folder("links");
    let (file, link) = (folder.join("file.svg"), folder.join("link.svg"));
    fs::write(&file, "old").unwrap();
    std::os::unix::fs::symlink("file.svg", &link).unwrap();
    run(&["--plot", link.to_str().unwrap()]);
    assert!(link.is_symlink());
    assert!(fs::read_to_string(&file).unwrap().ends_with("</svg>\n"));

    let out = run(&["--json", "--plot", "/dev/stdout"]);
    let (svg, json) = out.split_once("</svg>\n").unwrap();
    assert!(svg.starts_with("<svg"), "{svg}");
    assert!(json.starts_with("{\"tasks\":2000,"), "{json}");
    run(&["--plot", "/dev/null"]);
}

/// While the process is stopped its wheel cannot fire: that time says nothing of lost tasks.
#[cfg(unix)]
#[test]
fn a_stopped_process_loses_nothing() {
    stopped_process("--executor=inline");
}

#[cfg(unix)]
#[test]
fn a_stopped_process_loses_nothing_on_the_scheduler() {
    stopped_process("--scheduler");
}

#[cfg(unix)]
fn stopped_process(subject: &str) {
    let child = Command::new(env!("CARGO_BIN_EXE_wheelhouse"))
        .args([
            "load",
            "--tasks=20000",
            "--over=200ms",
            "--after=1s",
            "--json",
            subject,
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let signal = |name: &str| {
        let kill = format!("kill -{name} {}", child.id());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .unwrap()
                .success()
        );
    };
    thread::sleep(Duration::from_millis(500));
    signal("STOP");
    // Longer than the run waits for tasks that do not come.
    thread::sleep(Duration::from_millis(6500));
    signal("CONT");
    let output = child.wait_with_output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&json["fired"], &json["lost"]),
        (&20_000.into(), &0.into()),
        "{json}"
    );
    assert!(
        json["max_us"].as_u64().unwrap() > 4_000_000,
        "the stop came too early or too late to show anything: {json}"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_plot_that_cannot_be_written_is_known_at_once() {
    let begin = std::time::Instant::now();
    let run = wheelhouse(&["load", "--after=1h", "--plot=/nowhere/at/all.svg"], b"");
    assert!(
        run.stderr
            .starts_with("error: --plot: /nowhere/at/all.svg: "),
        "{}",
        run.stderr
    );
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.lines().count()),
        (Some(2), "", 1)
    );
    assert!(begin.elapsed().as_secs() < 60);
}

#[cfg(target_os = "linux")]
#[test]
fn more_tasks_than_there_is_memory_for_are_one_line_and_exit_code_1() {
    const TASKS: u64 = 1_000_000_000;
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let kib = |word| -> u64 {
        let line = memory.lines().find_map(|line| line.strip_prefix(word));
        let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
        kib.parse().unwrap()
    };
    // A machine that has room for a billion tasks cannot show it.
    if (kib("MemTotal:") + kib("SwapTotal:")) * 1024 >= TASKS * 64 {
        return;
    }
    for subject in ["--executor=inline", "--scheduler"] {
        let run = wheelhouse(&["load", "--tasks", &TASKS.to_string(), subject], b"");
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
        let words =
            "error: not enough memory for 1000000000 tasks: they need 61035 MiB at least, and ";
        assert!(run.stderr.starts_with(words), "{}", run.stderr);
        assert!(run.stderr.ends_with(" MiB are free\n"), "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1);
    }
}
