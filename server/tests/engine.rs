//! The engine through its public face, on a clock that is moved by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use wheelhouse_server::engine::{
    Cancelled, Ending, Engine, EventKind, InProcess, LATENESS_BOUNDS_MS, Left, Message,
    PublishError, Publishing, Put, Refused, Saved, Topics, Watch,
};
use wheelhouse_server::task::{Due, Key, Task, TaskError};
use wheelhouse_wheel::ManualClock;

const SECOND: Duration = Duration::from_secs(1);

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn task(json: &str) -> Task {
    Task::from_json(json.as_bytes()).unwrap()
}

fn engine(topics: impl Topics, clock: &ManualClock) -> Engine {
    Engine::builder(topics)
        .clock(clock.clone())
        .build()
        .unwrap()
}

/// The next event, which a task of the engine has to bring about; none for half a minute is a hang.
async fn next(watch: &mut Watch) -> (String, EventKind) {
    let next = tokio::time::timeout(Duration::from_secs(30), watch.next()).await;
    let event = next
        .expect("no event")
        .unwrap()
        .expect("the engine is gone");
    (event.key.to_string(), event.kind)
}

/// Fails so many attempts, then delivers.
struct Failing {
    left: AtomicU32,
}

impl Topics for Failing {
    fn publish(&self, _: Message) -> Publishing<'_> {
        Box::pin(async {
            let taken = self
                .left
                .try_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                });
            match taken {
                Ok(_) => Err(PublishError("the broker is away".to_owned())),
                Err(_) => Ok(()),
            }
        })
    }
}

/// Publishes when it is told to.
#[derive(Clone, Default)]
struct Gate {
    open: Arc<Notify>,
}

impl Topics for Gate {
    fn publish(&self, _: Message) -> Publishing<'_> {
        Box::pin(async {
            self.open.notified().await;
            Ok(())
        })
    }
}

#[tokio::test]
async fn a_task_is_delivered_at_its_time_and_not_before() {
    let (clock, topics) = (ManualClock::new(), InProcess::new());
    let mut heard = topics.subscribe("t");
    let engine = engine(topics, &clock);
    let put = engine.put(
        key("a"),
        task(r#"{"delay":"5s","target":{"topic":"t"},"payload":{"n":1}}"#),
    );
    assert_eq!(put.unwrap(), Put::Created);

    clock.advance(Duration::from_millis(4_999));
    assert!(!engine.find(&key("a")).unwrap().firing);
    assert!(heard.try_receive().is_none());
    clock.advance(Duration::from_millis(2));
    let message = heard.receive().await.unwrap();
    assert_eq!((&*message.key, message.attempt), ("a", 1));
    assert_eq!(message.payload.get(), r#"{"n":1}"#);
    assert_eq!(engine.stop().await.pending, 0);
    assert!(engine.find(&key("a")).is_none());
    assert_eq!(engine.stats().delivered, 1);
}

#[tokio::test]
async fn the_last_put_move_or_cancel_counts() {
    let (clock, topics) = (ManualClock::new(), InProcess::new());
    let mut heard = topics.subscribe("t");
    let engine = engine(topics, &clock);
    let at = |delay: &str, payload: u32| {
        task(&format!(
            r#"{{"delay":"{delay}","target":{{"topic":"t"}},"payload":{payload}}}"#
        ))
    };
    engine.put(key("replaced"), at("1s", 1)).unwrap();
    assert_eq!(
        engine.put(key("replaced"), at("3s", 2)).unwrap(),
        Put::Replaced
    );
    engine.put(key("moved"), at("1s", 3)).unwrap();
    engine.move_to(&key("moved"), 2 * SECOND).unwrap();
    engine.put(key("cancelled"), at("1s", 4)).unwrap();
    assert_eq!(engine.cancel(&key("cancelled")).unwrap(), Cancelled::InTime);
    let gone = Refused::NotFound(key("cancelled"));
    assert_eq!(engine.cancel(&key("cancelled")), Err(gone.clone()));
    assert_eq!(engine.move_to(&key("cancelled"), SECOND), Err(gone));

    let mut order = Vec::new();
    for _ in 0..2 {
        clock.run_for(2 * SECOND + SECOND / 2);
        order.push(heard.receive().await.unwrap().payload.get().to_owned());
    }
    clock.run_for(10 * SECOND);
    assert_eq!(engine.stop().await.pending, 0);
    assert_eq!(order, ["3", "2"]);
    assert!(heard.try_receive().is_none());
}

#[tokio::test]
async fn attempts_that_fail_are_repeated_after_waits_that_grow() {
    let clock = ManualClock::new();
    let engine = engine(
        Failing {
            left: AtomicU32::new(2),
        },
        &clock,
    );
    let mut watch = engine.watch();
    let json = r#"{"delay":"0s","target":{"topic":"t"},"retry":{"max_attempts":3,"base":"4s"}}"#;
    engine.put(key("a"), task(json)).unwrap();
    clock.advance(Duration::from_millis(2));
    assert_eq!(next(&mut watch).await.1, EventKind::Created);
    for (attempt, wait) in [(1, 4), (2, 8)] {
        assert_eq!(next(&mut watch).await.1, EventKind::Firing(attempt));
        let EventKind::Retrying(failed, _, reason) = next(&mut watch).await.1 else {
            panic!("the attempt did not fail");
        };
        assert_eq!((failed, &*reason), (attempt, "the broker is away"));
        // At least a half of the wait, at most all of it.
        clock.advance(wait * SECOND / 2 - 2 * Duration::from_millis(1));
        assert_eq!(engine.stats().failed, u64::from(attempt));
        clock.advance(wait * SECOND / 2 + 4 * Duration::from_millis(1));
    }
    assert_eq!(next(&mut watch).await.1, EventKind::Firing(3));
    assert_eq!(next(&mut watch).await.1, EventKind::Delivered(3));
    assert_eq!(engine.stop().await.pending, 0);
}

#[tokio::test]
async fn what_fails_too_often_is_a_dead_letter() {
    let clock = ManualClock::new();
    let topics = Failing {
        left: AtomicU32::new(u32::MAX),
    };
    let builder = Engine::builder(topics)
        .clock(clock.clone())
        .max_dead_letters(2);
    let engine = builder.build().unwrap();
    let mut watch = engine.watch();
    let json = r#"{"delay":"0s","target":{"topic":"t"},"payload":7,"retry":{"max_attempts":1}}"#;
    for name in ["a", "b", "c"] {
        engine.put(key(name), task(json)).unwrap();
        clock.advance(Duration::from_millis(2));
        while !matches!(next(&mut watch).await.1, EventKind::Dead(_)) {}
    }
    let letters = engine.dead_letters();
    let names: Vec<_> = letters.iter().map(|letter| letter.key.as_str()).collect();
    assert_eq!(names, ["b", "c"], "the oldest made room");
    assert_eq!((letters[0].attempts, letters[0].payload.get()), (1, "7"));
    assert_eq!((engine.stats().dead, engine.stats().pending), (3, 0));
    engine.stop().await;
}

#[tokio::test]
async fn a_task_older_than_its_time_to_live_is_not_delivered() {
    let clock = ManualClock::new();
    let engine = engine(
        Failing {
            left: AtomicU32::new(u32::MAX),
        },
        &clock,
    );
    let mut watch = engine.watch();
    let json = r#"{"delay":"0s","ttl":"3s","target":{"topic":"t"},"retry":{"base":"10s"}}"#;
    engine.put(key("a"), task(json)).unwrap();
    clock.advance(Duration::from_millis(2));
    while !matches!(next(&mut watch).await.1, EventKind::Retrying(..)) {}
    clock.advance(11 * SECOND);
    let EventKind::Dead(reason) = next(&mut watch).await.1 else {
        panic!("it was tried again");
    };
    assert_eq!(&*reason, "its time to live has passed");
    assert_eq!(engine.dead_letters()[0].attempts, 1);
    engine.stop().await;
}

#[tokio::test]
async fn a_task_that_repeats_keeps_to_its_grid() {
    let (clock, topics) = (ManualClock::new(), InProcess::new());
    let mut heard = topics.subscribe("t");
    let engine = engine(topics, &clock);
    let mut watch = engine.watch();
    engine
        .put(key("a"), task(r#"{"every":"1m","target":{"topic":"t"}}"#))
        .unwrap();
    let first = engine.find(&key("a")).unwrap().next.as_millisecond();
    for round in 1..=3 {
        clock.advance(60 * SECOND + Duration::from_millis(5));
        heard.receive().await.unwrap();
        while next(&mut watch).await.1 != EventKind::Delivered(1) {}
        // Taken after the event, the record is settled: both are under its lock.
        let due = engine.find(&key("a")).unwrap().next.as_millisecond();
        assert_eq!(due, first + round * 60_000);
    }
    engine.cancel(&key("a")).unwrap();
    assert_eq!(engine.stop().await.pending, 0);
}

#[tokio::test]
async fn a_cancel_during_an_attempt_says_so_and_a_move_is_refused() {
    let (clock, gate) = (ManualClock::new(), Gate::default());
    let engine = engine(gate.clone(), &clock);
    let mut watch = engine.watch();
    engine
        .put(key("a"), task(r#"{"delay":"0s","target":{"topic":"t"}}"#))
        .unwrap();
    clock.advance(Duration::from_millis(2));
    while next(&mut watch).await.1 != EventKind::Firing(1) {}
    assert_eq!(
        engine.move_to(&key("a"), SECOND),
        Err(Refused::UnderWay(key("a")))
    );
    assert_eq!(engine.cancel(&key("a")).unwrap(), Cancelled::UnderWay);
    gate.open.notify_one();
    assert_eq!(engine.stop().await.pending, 0);
    assert_eq!(engine.stats().pending, 0);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_times_out_and_a_stop_waits_no_longer() {
    let (clock, gate) = (ManualClock::new(), Gate::default());
    let engine = engine(gate, &clock);
    let mut watch = engine.watch();
    engine
        .put(key("a"), task(r#"{"delay":"0s","target":{"topic":"t"}}"#))
        .unwrap();
    engine
        .put(key("b"), task(r#"{"delay":"1h","target":{"topic":"t"}}"#))
        .unwrap();
    clock.advance(Duration::from_millis(2));
    while next(&mut watch).await != ("a".to_owned(), EventKind::Firing(1)) {}
    assert_eq!(engine.stop().await.pending, 2);
    assert_eq!(engine.stats().failed, 1);
    let late = engine.put(key("c"), task(r#"{"delay":"1h","target":{"topic":"t"}}"#));
    assert_eq!(late, Err(Refused::Stopping));
}

/// Each end is told once, to those who asked about that very task.
#[tokio::test]
async fn who_asks_is_told_once_how_a_task_ended() {
    let clock = ManualClock::new();
    let engine = engine(
        Failing {
            left: AtomicU32::new(1),
        },
        &clock,
    );
    let mut watch = engine.watch();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let ask = |name: &'static str| {
        let tell = tell.clone();
        move |ending| tell.send((name, ending)).unwrap()
    };
    let put = |name: &'static str, asked: &'static str, json: &str| {
        let done = engine.put_and_tell(key(name), task(json), ask(asked));
        done.unwrap();
    };
    let hour = r#"{"delay":"1h","target":{"topic":"t"}}"#;
    let once = r#"{"delay":"0s","target":{"topic":"t"},"retry":{"max_attempts":1}}"#;

    put("a", "first", hour);
    put("a", "second", hour);
    assert_eq!(told.try_recv().unwrap(), ("first", Ending::Replaced));
    engine.tell_ending(&key("a"), ask("also second")).unwrap();
    let panics = engine.tell_ending(&key("a"), |_| panic!("of the caller's own"));
    panics.unwrap();
    engine.cancel(&key("a")).unwrap();
    assert_eq!(told.try_recv().unwrap(), ("second", Ending::Cancelled));
    assert_eq!(told.try_recv().unwrap(), ("also second", Ending::Cancelled));
    let gone = engine.tell_ending(&key("a"), ask("nobody"));
    assert_eq!(gone, Err(Refused::NotFound(key("a"))));

    put("b", "dies", once);
    clock.advance(Duration::from_millis(2));
    while !matches!(next(&mut watch).await.1, EventKind::Dead(_)) {}
    assert_eq!(told.recv().await.unwrap(), ("dies", Ending::Dead));
    put("c", "arrives", once);
    clock.advance(Duration::from_millis(2));
    assert_eq!(told.recv().await.unwrap(), ("arrives", Ending::Delivered));

    // A task that repeats has not ended when it was delivered.
    put("d", "repeats", r#"{"every":"1s","target":{"topic":"t"}}"#);
    clock.advance(SECOND + Duration::from_millis(2));
    while next(&mut watch).await.1 != EventKind::Delivered(1) {}
    assert!(told.try_recv().is_err());
    engine.stop().await;
    assert_eq!(told.try_recv().unwrap(), ("repeats", Ending::Stopped));
    let late = engine.put_and_tell(key("e"), task(hour), ask("nobody"));
    assert_eq!(late, Err(Refused::Stopping));
    assert!(told.try_recv().is_err());
}

fn all_saved(engine: &Engine) -> Vec<Saved> {
    let mut all = Vec::new();
    let saved = engine.save(|task| {
        all.push(task);
        Ok::<_, ()>(())
    });
    assert_eq!(saved, Ok(()));
    all.sort_by_key(|task| task.key.clone());
    all
}

#[tokio::test]
async fn what_is_saved_goes_on_in_another_engine() {
    let clock = ManualClock::new();
    let failing = Failing {
        left: AtomicU32::new(1),
    };
    let first = engine(failing, &clock);
    let mut watch = first.watch();
    for (name, json) in [
        (
            "failed",
            r#"{"delay":"1s","target":{"topic":"t"},"payload":[1]}"#,
        ),
        ("late", r#"{"delay":"5s","target":{"topic":"t"}}"#),
        (
            "stale",
            r#"{"delay":"5s","target":{"topic":"t"},"ttl":"1s"}"#,
        ),
        ("every", r#"{"every":"20s","target":{"topic":"t"}}"#),
        (
            "cron",
            r#"{"cron":"0 0 * * *","tz":"Europe/Berlin","target":{"topic":"t"}}"#,
        ),
    ] {
        first.put(key(name), task(json)).unwrap();
    }
    clock.advance(SECOND + Duration::from_millis(2));
    while !matches!(next(&mut watch).await.1, EventKind::Retrying(1, ..)) {}
    assert_eq!(first.stop().await.pending, 5);

    let saved = all_saved(&first);
    clock.advance(9 * SECOND);
    let topics = InProcess::new();
    let mut heard = topics.subscribe("t");
    let second = engine(topics, &clock);
    let mut watch = second.watch();
    for task in saved.clone() {
        second.restore(task).unwrap();
    }
    // All of it, to the last field.
    let again = all_saved(&second);
    assert_eq!(format!("{again:?}"), format!("{saved:?}"));
    assert_eq!((second.stats().pending, second.stats().taken_in), (5, 5));

    // What came due meanwhile is late, or too late; attempts go on counting.
    clock.advance(Duration::from_millis(2));
    let mut came = Vec::new();
    for _ in 0..2 {
        let message = heard.receive().await.unwrap();
        came.push((message.key.to_string(), message.attempt));
    }
    came.sort();
    assert_eq!(came, [("failed".to_owned(), 2), ("late".to_owned(), 1)]);
    while !matches!(next(&mut watch).await, (key, EventKind::Dead(_)) if key == "stale") {}
    // On the grid that it had before.
    clock.advance(10 * SECOND);
    assert_eq!(&*heard.receive().await.unwrap().key, "every");
    assert_eq!(second.stop().await.pending, 2);
    assert_eq!(second.restore(saved[0].clone()), Err(Refused::Stopping));
}

#[tokio::test]
async fn an_error_ends_a_save() {
    let clock = ManualClock::new();
    let engine = engine(InProcess::new(), &clock);
    for name in ["a", "b", "c"] {
        let hour = task(r#"{"delay":"1h","target":{"topic":"t"}}"#);
        engine.put(key(name), hour).unwrap();
    }
    let mut seen = 0;
    let saved = engine.save(|_| {
        seen += 1;
        if seen == 2 { Err("full") } else { Ok(()) }
    });
    assert_eq!((saved, seen), (Err("full"), 2));
}

/// Who waits for the end of the one that was there is not left waiting for the other's.
#[tokio::test]
async fn a_restored_task_replaces_as_any_other_does() {
    let clock = ManualClock::new();
    let engine = engine(InProcess::new(), &clock);
    let hour = || task(r#"{"delay":"1h","target":{"topic":"t"}}"#);
    engine.put(key("a"), hour()).unwrap();
    let saved = all_saved(&engine).remove(0);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let asked = engine.put_and_tell(key("a"), hour(), move |end| tell.send(end).unwrap());
    assert_eq!(asked.unwrap(), Put::Replaced);

    let mut watch = engine.watch();
    assert_eq!(engine.restore(saved), Ok(Put::Replaced));
    assert_eq!(told.try_recv(), Ok(Ending::Replaced));
    assert_eq!(next(&mut watch).await.1, EventKind::Replaced);
    let stats = engine.stats();
    assert_eq!((stats.pending, stats.taken_in, stats.replaced), (1, 3, 2));
}

#[tokio::test]
async fn only_first_attempts_count_as_late() {
    let clock = ManualClock::new();
    let failing = Failing {
        left: AtomicU32::new(1),
    };
    let engine = engine(failing, &clock);
    let mut watch = engine.watch();
    let soon = task(r#"{"delay":"5ms","target":{"topic":"t"},"retry":{"base":"1s","max":"1s"}}"#);
    engine.put(key("a"), soon).unwrap();
    clock.advance(Duration::from_millis(12));
    while !matches!(next(&mut watch).await.1, EventKind::Retrying(..)) {}
    clock.advance(2 * SECOND);
    while next(&mut watch).await.1 != EventKind::Delivered(2) {}
    let lateness = engine.lateness();
    let seven = LATENESS_BOUNDS_MS.iter().position(|bound| *bound == 10);
    assert_eq!(lateness.buckets[seven.unwrap()], 1, "{lateness:?}");
    assert_eq!(lateness.buckets.iter().sum::<u64>(), 1);
    assert_eq!(lateness.sum_ms, 7);
    assert_eq!(engine.wheel_stats().fired, 2);
}

#[tokio::test]
async fn pages_are_in_order_and_complete() {
    let clock = ManualClock::new();
    let engine = engine(InProcess::new(), &clock);
    let mut names: Vec<_> = (0..250).map(|n| format!("order/{n}")).collect();
    for name in names
        .iter()
        .chain([&"other".to_owned(), &"orde".to_owned()])
    {
        engine
            .put(key(name), task(r#"{"delay":"1h","target":{"topic":"t"}}"#))
            .unwrap();
    }
    names.sort();
    let (mut seen, mut cursor) = (Vec::new(), None::<Key>);
    loop {
        let page = engine.list("order/", cursor.as_deref(), 100).unwrap();
        seen.extend(page.tasks.iter().map(|(key, _)| key.to_string()));
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, names);
    assert!(engine.list("", None, 0).is_err());
    let left: Left = engine.stop().await;
    assert_eq!(left.pending, 252);
}

#[tokio::test]
async fn the_limit_of_tasks_holds_and_replacing_needs_no_room() {
    let clock = ManualClock::new();
    let builder = Engine::builder(InProcess::new()).clock(clock).max_tasks(1);
    let engine = builder.build().unwrap();
    let hour = || task(r#"{"delay":"1h","target":{"topic":"t"}}"#);
    engine.put(key("a"), hour()).unwrap();
    assert_eq!(engine.put(key("b"), hour()), Err(Refused::Full(1)));
    assert_eq!(engine.put(key("a"), hour()), Ok(Put::Replaced));
    engine.cancel(&key("a")).unwrap();
    assert_eq!(engine.put(key("b"), hour()), Ok(Put::Created));
    engine.stop().await;
}

#[test]
fn what_is_no_task_is_refused_with_its_field() {
    let rows = [
        (r#"{"target":{"topic":"t"}}"#, "schedule"),
        (
            r#"{"delay":"1s","at":"2030-01-01T00:00:00Z","target":{"topic":"t"}}"#,
            "schedule",
        ),
        (r#"{"delay":"soon","target":{"topic":"t"}}"#, "delay"),
        (r#"{"delay":"-1s","target":{"topic":"t"}}"#, "delay"),
        (r#"{"delay":"101years","target":{"topic":"t"}}"#, "delay"),
        (r#"{"at":"tomorrow","target":{"topic":"t"}}"#, "at"),
        (r#"{"every":"9ms","target":{"topic":"t"}}"#, "every"),
        (r#"{"cron":"61 * * * *","target":{"topic":"t"}}"#, "cron"),
        (
            r#"{"cron":"* * * * *","tz":"Mars/Base","target":{"topic":"t"}}"#,
            "cron",
        ),
        (r#"{"delay":"1s","tz":"UTC","target":{"topic":"t"}}"#, "tz"),
        (r#"{"delay":"1s","target":{"topic":""}}"#, "target.topic"),
        (
            r#"{"delay":"1s","target":{"topic":"wheelhouse:tasks"}}"#,
            "target.topic",
        ),
        (r#"{"delay":"1s","target":{"topic":"t"},"ttl":"x"}"#, "ttl"),
        (
            r#"{"delay":"1s","target":{"topic":"t"},"retry":{"max_attempts":0}}"#,
            "retry.max_attempts",
        ),
        (
            r#"{"delay":"1s","target":{"topic":"t"},"retry":{"max_attempts":101}}"#,
            "retry.max_attempts",
        ),
        (
            r#"{"delay":"1s","target":{"topic":"t"},"retry":{"base":"0s"}}"#,
            "retry.base",
        ),
        (
            r#"{"delay":"1s","target":{"topic":"t"},"retry":{"base":"2s","max":"1s"}}"#,
            "retry.max",
        ),
    ];
    for (json, expected) in rows {
        match Task::from_json(json.as_bytes()) {
            Err(TaskError::Field { field, .. }) => assert_eq!(field, expected, "{json}"),
            other => panic!("{json}: {other:?}"),
        }
    }
    let unreadable = [
        "",
        "[]",
        r#"{"delay":"1s"}"#,
        r#"{"delay":1,"target":{"topic":"t"}}"#,
        r#"{"delay":"1s","delay":"2s","target":{"topic":"t"}}"#,
        r#"{"delay":"1s","target":{"topic":"t"},"extra":1}"#,
        r#"{"delay":"1s","target":{"queue":"t"}}"#,
        r#"{"delay":"1s","target":{"topic":"t"}} x"#,
    ];
    for json in unreadable {
        let refused = Task::from_json(json.as_bytes()).unwrap_err();
        assert!(matches!(refused, TaskError::Json(_)), "{json}: {refused}");
    }
}

#[test]
fn a_task_and_a_time_may_come_with_their_key() {
    let line = br#"{"key":"a","delay":"1s","target":{"topic":"t"}}"#;
    assert_eq!(Task::keyed_from_json(line).unwrap().0, key("a"));
    let line = br#"{"key":"a","delay":"1s"}"#;
    let (name, due) = Due::keyed_from_json(line).unwrap();
    assert_eq!((name, due), (key("a"), Due::Delay(SECOND)));
    let at = Due::from_json(br#"{"at":"2030-01-01T00:00:00+01:00"}"#);
    let expected = "2029-12-31T23:00:00Z".parse().unwrap();
    assert_eq!(at, Ok(Due::At(expected)));

    type Read = fn(&[u8]) -> Option<TaskError>;
    let keyed_task: Read = |json| Task::keyed_from_json(json).err();
    let bare_task: Read = |json| Task::from_json(json).err();
    let keyed_due: Read = |json| Due::keyed_from_json(json).err();
    let bare_due: Read = |json| Due::from_json(json).err();
    let rows = [
        (keyed_task, r#"{"delay":"1s","target":{"topic":"t"}}"#, ""),
        (
            keyed_task,
            r#"{"key":"","delay":"1s","target":{"topic":"t"}}"#,
            "key",
        ),
        (
            bare_task,
            r#"{"key":"a","delay":"1s","target":{"topic":"t"}}"#,
            "key",
        ),
        (keyed_due, r#"{"delay":"1s"}"#, ""),
        (bare_due, r#"{"key":"a","delay":"1s"}"#, "key"),
        (bare_due, r#"{}"#, "due"),
        (
            bare_due,
            r#"{"delay":"1s","at":"2030-01-01T00:00:00Z"}"#,
            "due",
        ),
        (bare_due, r#"{"delay":"x"}"#, "delay"),
        (bare_due, r#"{"at":"x"}"#, "at"),
        (bare_due, r#"{"every":"1s"}"#, ""),
    ];
    for (read, json, expected) in rows {
        let field = match read(json.as_bytes()) {
            Some(TaskError::Field { field, .. }) => field,
            Some(TaskError::Json(_)) => "",
            other => panic!("{json}: {other:?}"),
        };
        assert_eq!(field, expected, "{json}");
    }
}
