//! What a builder takes and refuses, and what it calls things.

mod support {
    pub(crate) mod threads;
}

use std::time::Duration;

use wheelhouse_wheel::{BuildError, Builder, Executor, TimingWheel};

use support::threads::await_threads;

fn builder() -> Builder {
    TimingWheel::builder()
}

/// Why a wheel is not built, in each of the three ways.
fn refusals(builder: Builder) -> [String; 3] {
    [
        builder.clone().build(|_: u32, ()| {}).map(drop),
        builder.clone().manual(|_: u32, ()| {}).map(drop),
        builder.stream::<u32, ()>(1).map(drop),
    ]
    .map(|outcome| match outcome {
        Err(error @ BuildError::Argument { .. }) => error.to_string(),
        outcome => panic!("not refused by name: {outcome:?}"),
    })
}

#[test]
fn each_bad_argument_is_named_with_its_value() {
    let cases = [
        (
            builder().interval(Duration::ZERO),
            "interval: 0ns is not allowed, it must be more than 0",
        ),
        (
            builder().slots(0),
            "slots: 0 is not allowed, it must be 1 to 16777216",
        ),
        (
            builder().slots(16_777_217),
            "slots: 16777217 is not allowed, it must be 1 to 16777216",
        ),
        (
            builder().shards(0),
            "shards: 0 is not allowed, it must be 1 to 1024",
        ),
        (
            builder().shards(1025),
            "shards: 1025 is not allowed, it must be 1 to 1024",
        ),
        (
            builder().channel(0),
            "channel: 0 is not allowed, it must be 1 to 65536",
        ),
        (
            builder().channel(65_537),
            "channel: 65537 is not allowed, it must be 1 to 65536",
        ),
        (
            builder().max_pending(0),
            "max_pending: 0 is not allowed, it must be 1 or more",
        ),
        (
            builder().name("a\0b"),
            "name: \"a\\0b\" is not allowed, it must be without NUL characters",
        ),
    ];
    for (builder, message) in cases {
        assert_eq!(refusals(builder), [message; 3]);
    }
}

#[test]
fn executors_and_streams_have_bounds_of_their_own() {
    for threads in [0, 1025] {
        let error = builder()
            .executor(Executor::Threads(threads))
            .build(|_: u32, ()| {})
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("executor: Threads: {threads} is not allowed, it must be 1 to 1024")
        );
    }
    let error = builder().stream::<u32, ()>(0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "stream: 0 is not allowed, it must be 1 or more"
    );
}

#[test]
fn the_ends_of_each_range_are_allowed() {
    let least = builder()
        .interval(Duration::from_nanos(1))
        .slots(1)
        .shards(1)
        .channel(1)
        .max_pending(1);
    // Apart, since they multiply.
    let most_shards = builder()
        .interval(Duration::MAX)
        .shards(1024)
        .unbounded_pending();
    let most_slots = builder().slots(16_777_216).shards(1).channel(65_536);
    for builder in [least, most_shards, most_slots] {
        let wheel = builder.build(|_: u32, _: u32| {}).unwrap();
        wheel.set_timer(1, 2, Duration::from_secs(3600)).unwrap();
        assert_eq!(wheel.stop(), [(1, 2)]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn threads_bear_the_name_of_their_wheel() {
    let wheel = builder()
        .name("named")
        .executor(Executor::Threads(2))
        .build(|_: u32, ()| {})
        .unwrap();
    for name in ["named", "named-0", "named-1"] {
        await_threads(name, 1);
    }
    drop(wheel);
    for name in ["named", "named-0", "named-1"] {
        await_threads(name, 0);
    }
    let (wheel, stream) = builder().name("streaming").stream::<u32, ()>(1).unwrap();
    await_threads("streaming", 1);
    drop(stream);
    await_threads("streaming", 0);
    assert_eq!(wheel.stop(), []);
    let wheel = builder().name("by-hand").manual(|_: u32, ()| {}).unwrap();
    await_threads("by-hand", 0);
    drop(wheel);
}

#[test]
fn what_is_shown_for_debugging() {
    let wheel = builder().name("shown").build(|_: u32, ()| {}).unwrap();
    assert_eq!(format!("{wheel:?}"), "TimingWheel { name: \"shown\", .. }");
    assert_eq!(format!("{:?}", wheel.downgrade()), "WeakTimingWheel { .. }");
    let error = wheel.stop();
    assert_eq!(error, []);
    let error = wheel.set_timer(1, (), Duration::ZERO).unwrap_err();
    assert_eq!(format!("{error:?}"), "Closed(..)");
    let shown = format!("{:?}", builder());
    for setting in [
        "interval: 1ms",
        "slots: 512",
        "shards: 16",
        "channel: 64",
        "max_pending: 16777216",
        "executor: Inline",
        "ordered_by_key: false",
    ] {
        assert!(shown.contains(setting), "{setting} is not in {shown}");
    }
}
