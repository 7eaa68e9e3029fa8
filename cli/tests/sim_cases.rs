//! `sim wheel` on small programs with known outcomes: sequences that wheels get wrong, and
//! what the documentation says of each event.

mod program;

use program::wheelhouse;

/// Turns `set k 7; tick 2; move k=v 5` into lines of input; `tick n` lets n ms pass.
fn lines(steps: &str) -> String {
    let mut at_ms = 0_u64;
    let mut lines = String::new();
    for step in steps.split("; ").filter(|step| !step.is_empty()) {
        let words: Vec<&str> = step.split(' ').collect();
        let line = match words[..] {
            ["tick", by] => {
                at_ms += by.parse::<u64>().unwrap();
                continue;
            }
            ["set", pair, delay] => {
                let (key, value) = pair.split_once('=').unwrap_or((pair, "-"));
                format!(r#""op":"set","key":"{key}","delay_ms":{delay},"value":"{value}""#)
            }
            ["move", key, delay] => format!(r#""op":"move","key":"{key}","delay_ms":{delay}"#),
            ["remove", key] => format!(r#""op":"remove","key":"{key}""#),
            ["drain"] => r#""op":"drain""#.to_owned(),
            _ => panic!("no such step: {step}"),
        };
        lines.push_str(&format!("{{\"at_ms\":{at_ms},{line}}}\n"));
    }
    lines
}

/// Events in short: `8 fired k v`, `0 missing move k`.
fn events(stdout: &str) -> Vec<String> {
    let short = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| event[name].as_str().map(|text| format!(" {text}"));
        let value = text("value").filter(|value| value != " -");
        let parts = [text("op"), text("key"), value]
            .into_iter()
            .flatten()
            .collect::<String>();
        format!(
            "{} {}{parts}",
            event["at_ms"],
            event["event"].as_str().unwrap()
        )
    };
    stdout.lines().map(short).collect()
}

/// Runs `steps` on wheels of `slots` slots and expects `outcome`, events joined by `; `.
#[track_caller]
fn check(slots: &[&str], steps: &str, outcome: &str) {
    check_with(slots, "1", steps, outcome);
}

#[track_caller]
fn check_with(slots: &[&str], interval_ms: &str, steps: &str, outcome: &str) {
    for slots in slots {
        let args = [
            "sim",
            "wheel",
            "--slots",
            slots,
            "--interval-ms",
            interval_ms,
        ];
        let run = wheelhouse(&args, lines(steps).as_bytes());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{steps}");
        assert_eq!(
            events(&run.stdout).join("; "),
            outcome,
            "{slots} slots: {steps}"
        );
    }
}

#[test]
fn sequences_on_one_ring() {
    for (slots, steps, outcome) in [
        ("10", "tick 6; set k 7; move k 2", "8 fired k"),
        ("10", "tick 6; set k=v1 7; set k=v2 2", "8 fired k v2"),
        (
            "10",
            "tick 6; set k 5; move k 9; tick 1; move k 2",
            "9 fired k",
        ),
        ("10", "tick 6; set k 2; move k 15", "21 fired k"),
        ("10", "tick 6; set k 20; tick 7; move k 20", "33 fired k"),
        ("2", "set k 3; tick 1; move k 1", "2 fired k"),
        ("5", "tick 1; set k 1; move k 10", "11 fired k"),
        ("10", "set k 4; move k 0", "1 fired k"),
        ("10", "set k 4; drain; set k 6", "0 drained k; 6 fired k"),
        (
            "10",
            "set k 4; drain; move k 2",
            "0 drained k; 0 missing move k",
        ),
        ("10", "tick 4; set k 10", "14 fired k"),
        ("10", "set k 4; remove k; set k 4", "4 fired k"),
    ] {
        check(&[slots, "1", "3", "512"], steps, outcome);
    }
}

#[test]
fn w1_a_dead_entry_is_not_found_again() {
    check(&["10"], "set k 5; move k 2; move k 9; tick 5; remove k", "");
}

#[test]
fn w2_a_move_to_zero_fires_once() {
    check(
        &["10"],
        "set k 4; move k 0; tick 10; remove x",
        "1 fired k; 10 missing remove x",
    );
}

#[test]
fn w3_a_set_after_a_drain() {
    check(&["10"], "set k 4; drain; set k 6", "0 drained k; 6 fired k");
}

#[test]
fn w6_whole_turns_from_every_phase() {
    for phase in 0..10 {
        for turns in [10, 20, 30] {
            let steps = format!("tick {phase}; set k {turns}");
            check(&["10"], &steps, &format!("{} fired k", phase + turns));
        }
    }
}

#[test]
fn w7_no_delay_is_the_next_tick() {
    check(&["512"], "tick 3; set k 0", "4 fired k");
    check_with(&["512"], "100", "tick 3; set k 0", "100 fired k");
    check_with(&["512"], "100", "tick 100; set k 0", "200 fired k");
}

#[test]
fn w13_a_period_of_seven_on_sixty_slots() {
    let steps = "set k 7; tick 7; ".repeat(100);
    let fired: Vec<String> = (1..=100).map(|k| format!("{} fired k", 7 * k)).collect();
    check(&["60"], &steps, &fired.join("; "));
}

#[test]
fn w14_w15_w22_w42b_once_and_exact() {
    check(
        &["10"],
        "set k 25; tick 30; remove k",
        "25 fired k; 30 missing remove k",
    );
    check(
        &["10"],
        "set k 1; remove k; tick 2; remove k",
        "2 missing remove k",
    );
    check(&["10"], "set k 1", "1 fired k");
    check(
        &["10"],
        "tick 9; set a 9; set b 10",
        "18 fired a; 19 fired b",
    );
}

#[test]
fn w17_w21_w43_long_delays_on_short_rings() {
    check(
        &["256"],
        "set a 300; set b 512; set c 700",
        "300 fired a; 512 fired b; 700 fired c",
    );
    check_with(&["4096"], "100", "set k 3900000", "3900000 fired k");
    check_with(
        &["3600"],
        "1000",
        "set a 3600000; set b 3601000; set c 86400000",
        "3600000 fired a; 3601000 fired b; 86400000 fired c",
    );
}

#[test]
fn w18_w34_between_two_ticks() {
    check_with(&["512"], "10", "set k 12", "20 fired k");
    check_with(
        &["512"],
        "100",
        "set a 110; set b 230; set c 149; set d 151",
        "200 fired a; 200 fired c; 200 fired d; 300 fired b",
    );
}

#[test]
fn w23_w27_far_does_not_hide_near() {
    check(
        &["64"],
        "set far 68719476737; tick 1073741324; set near 1000",
        "1073742324 fired near; 68719476737 fired far",
    );
    check(
        &["64"],
        "set a 100; set b 120; tick 64; remove x",
        "64 missing remove x; 100 fired a; 120 fired b",
    );
}

#[test]
fn w37_powers_of_two() {
    for bits in 1..63_u64 {
        let power = 1_u64 << bits;
        let steps = format!("set a {}; set b {power}; set c {}", power - 1, power + 1);
        let outcome = format!(
            "{} fired a; {power} fired b; {} fired c",
            (power - 1).max(1),
            power + 1
        );
        check(&["64", "512"], &steps, &outcome);
    }
}

#[test]
fn w46_a_drain_gives_each_key_its_own_value() {
    let set: Vec<String> = (0..10)
        .map(|k| format!("set k{k}=v{k} {}", 1000 * (10 - k)))
        .collect();
    let drained: Vec<String> = (0..10)
        .rev()
        .map(|k| format!("0 drained k{k} v{k}"))
        .collect();
    check(
        &["10"],
        &format!("{}; drain", set.join("; ")),
        &drained.join("; "),
    );
}

#[test]
fn order_within_a_tick_is_the_last_touch() {
    check(
        &["10", "512"],
        "set a 20; set b 20; set c 20; move a 20; tick 5; set d 15; move c 15",
        "20 fired b; 20 fired a; 20 fired d; 20 fired c",
    );
}

#[test]
fn the_tick_comes_before_the_operations_of_its_instant() {
    check(
        &["10"],
        "set k 5; tick 5; move k 1",
        "5 fired k; 5 missing move k",
    );
    check_with(
        &["10"],
        "5",
        "set k 5; tick 6; move k 1",
        "5 fired k; 6 missing move k",
    );
}

/// The very end of time, where a tick number is as great as it gets.
#[test]
fn the_last_tick_and_what_lies_beyond() {
    let max = u64::MAX;
    let args = ["sim", "wheel"];
    let input = format!(
        r#"{{"at_ms":5,"op":"set","key":"later","delay_ms":{max},"value":"v"}}
{{"at_ms":5,"op":"set","key":"last","delay_ms":{}}}
{{"at_ms":6,"op":"set","key":"beyond","delay_ms":{}}}
{{"at_ms":{max},"op":"move","key":"last","delay_ms":0}}
{{"at_ms":{max},"op":"move","key":"beyond","delay_ms":{max}}}
{{"at_ms":{max},"op":"set","key":"new","delay_ms":0}}
"#,
        max - 5,
        max - 5,
    );
    let expected = format!(
        r#"{{"at_ms":{max},"event":"fired","key":"last","value":null}}
{{"at_ms":{max},"event":"missing","op":"move","key":"last"}}
{{"at_ms":{max},"event":"pending","key":"new","value":null,"due_ms":18446744073709551615}}
{{"at_ms":{max},"event":"pending","key":"later","value":"v","due_ms":18446744073709551620}}
{{"at_ms":{max},"event":"pending","key":"beyond","value":null,"due_ms":36893488147419103230}}
"#
    );
    let run = wheelhouse(&args, input.as_bytes());
    assert_eq!(
        (run.stdout.as_str(), run.code),
        (expected.as_str(), Some(0))
    );
}

#[test]
fn the_widest_interval_has_one_tick() {
    let interval = format!("--interval-ms={}", u64::MAX);
    let input = lines("tick 7; set a 0; set b 9; remove x");
    let run = wheelhouse(&["sim", "wheel", &interval], input.as_bytes());
    let max = u64::MAX;
    assert_eq!(
        events(&run.stdout).join("; "),
        format!("7 missing remove x; {max} fired a; {max} fired b")
    );
}

#[test]
fn until_stops_reading_and_shows_what_is_pending() {
    let input = lines("set a 5; set b=v 50; tick 10; set c 0; tick 1; drain") + "not even JSON\n";
    let run = wheelhouse(&["sim", "wheel", "--until-ms", "10"], input.as_bytes());
    assert_eq!(
        run.stdout,
        r#"{"at_ms":5,"event":"fired","key":"a","value":"-"}
{"at_ms":10,"event":"pending","key":"c","value":"-","due_ms":10}
{"at_ms":10,"event":"pending","key":"b","value":"v","due_ms":50}
"#
    );
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
}

#[test]
fn until_past_the_input_runs_on_to_it() {
    let run = wheelhouse(
        &["sim", "wheel", "--until-ms=40"],
        lines("set a 40; set b 41").as_bytes(),
    );
    assert_eq!(events(&run.stdout), ["40 fired a", "40 pending b"]);
}

#[test]
fn no_input_is_no_output() {
    for input in ["", "\n", "\n  \n\t\r\n"] {
        let run = wheelhouse(&["sim", "wheel"], input.as_bytes());
        assert_eq!(
            (run.code, run.stdout.as_str(), run.stderr.as_str()),
            (Some(0), "", "")
        );
    }
}

#[test]
fn lines_may_end_like_windows_lines_or_not_at_all() {
    let input = "{\"at_ms\":0,\"op\":\"set\",\"key\":\"a\",\"delay_ms\":1}\r\n\r\n{\"at_ms\":1,\"op\":\"drain\"}";
    let run = wheelhouse(&["sim", "wheel"], input.as_bytes());
    assert_eq!(events(&run.stdout), ["1 fired a"]);
    assert_eq!(run.code, Some(0));
}

#[test]
fn statistics_are_one_line_on_standard_error() {
    // A thousand later moves of one timer cost one relocation.
    let steps = "set k 10; ".to_owned() + &"move k 20; ".repeat(1000);
    let run = wheelhouse(&["sim", "wheel", "--stats"], lines(&steps).as_bytes());
    assert_eq!(events(&run.stdout), ["20 fired k"]);
    assert!(
        run.stderr.starts_with("relocations=1 cascades="),
        "{}",
        run.stderr
    );
    assert_eq!(run.stderr.lines().count(), 1);
}
