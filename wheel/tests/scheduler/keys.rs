//! Tasks that carry a key: who replaces whom, who is refused, and whose run waits for whose.

use std::future::ready;
use std::sync::Arc;

use crate::support::runs::{MS, Runs};
use tokio::time::sleep;
use wheelhouse_wheel::TokioClock;
use wheelhouse_wheel::scheduler::{
    Cancel, Duplicate, Refusal, Run, Scheduler, Status, TaskError, TaskOptions,
};

fn paused() -> (Scheduler, Runs) {
    let scheduler = Scheduler::builder().build().unwrap();
    (scheduler, Runs::new(TokioClock))
}

fn keyed(scheduler: &Scheduler) -> TaskOptions {
    scheduler.task().key("k")
}

fn refusing(scheduler: &Scheduler) -> TaskOptions {
    keyed(scheduler).on_duplicate(Duplicate::Refuse)
}

#[tokio::test(start_paused = true)]
async fn the_new_task_replaces_the_old_that_waits() {
    let (scheduler, runs) = paused();
    let old = keyed(&scheduler).after(10 * MS, runs.work("old")).unwrap();
    let new = keyed(&scheduler).after(20 * MS, runs.work("new")).unwrap();
    assert_eq!(old.status(), Status::Ended);
    assert_eq!(old.await, Err(TaskError::Cancelled));
    assert_eq!(scheduler.len(), 1);
    sleep(50 * MS).await;
    assert_eq!(runs.taken(), "20 new");
    assert_eq!(new.await, Ok(()));
    assert_eq!(scheduler.stats().cancelled, 1);
}

#[tokio::test(start_paused = true)]
async fn the_new_task_waits_for_the_run_of_the_one_it_replaces() {
    let (scheduler, runs) = paused();
    let work = {
        let runs = runs.clone();
        move || {
            let runs = runs.clone();
            async move {
                runs.note("old");
                sleep(50 * MS).await;
                runs.note("old ends");
                Ok::<_, String>("its outcome")
            }
        }
    };
    let old = keyed(&scheduler).every(10 * MS, work).unwrap();
    sleep(15 * MS).await;
    let new = keyed(&scheduler).every(10 * MS, runs.work("new")).unwrap();
    sleep(20 * MS).await;
    assert_eq!((old.status(), new.status()), (Status::Running, Status::Due));
    // The run in progress is the last of the old task.
    assert_eq!(old.await, Ok("its outcome"));
    sleep(30 * MS).await;
    assert_eq!(
        runs.taken(),
        "10 old, 60 old ends, 60 new, 60 new, 60 new, 60 new, 65 new, 75 new, 85 new"
    );
    assert_eq!(new.cancel(), Cancel::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_is_refused_until_the_first_has_ended() {
    let (scheduler, runs) = paused();
    let slow = refusing(&scheduler).after(10 * MS, || sleep(20 * MS));
    let slow = slow.unwrap();
    let refused = |when| {
        let given = Arc::new(());
        let work = {
            let given = given.clone();
            move || {
                let _ = &given;
                ready(())
            }
        };
        let error = refusing(&scheduler).after(10 * MS, work).unwrap_err();
        assert_eq!(
            *error.refusal(),
            Refusal::Duplicate { key: "k".into() },
            "{when}"
        );
        // The work is given back, and nothing is left of it when it is dropped.
        drop(error.into_work());
        assert_eq!(Arc::strong_count(&given), 1);
    };
    refused("waiting");
    sleep(15 * MS).await;
    refused("running");
    assert_eq!(scheduler.len(), 1);
    slow.await.unwrap();
    drop(
        refusing(&scheduler)
            .after(10 * MS, runs.work("next"))
            .unwrap(),
    );
    sleep(20 * MS).await;
    assert_eq!(runs.taken(), "40 next");
}

#[tokio::test(start_paused = true)]
async fn a_paused_or_retrying_task_holds_its_key() {
    let (scheduler, runs) = paused();
    let task = refusing(&scheduler).every(10 * MS, runs.work("a")).unwrap();
    assert!(task.pause());
    sleep(50 * MS).await;
    assert!(refusing(&scheduler).after(MS, || ready(())).is_err());
    assert_eq!(task.cancel(), Cancel::Cancelled);
    let retry = wheelhouse_wheel::scheduler::Retry::fixed(100 * MS);
    let options = refusing(&scheduler).retry(retry);
    let failing = options.after(MS, || ready(Err::<(), _>("no"))).unwrap();
    sleep(10 * MS).await;
    assert_eq!(failing.status(), Status::Retrying);
    assert!(refusing(&scheduler).after(MS, || ready(())).is_err());
    assert_eq!(runs.taken(), "");
}

#[tokio::test(start_paused = true)]
async fn tasks_are_found_and_cancelled_by_key() {
    let (scheduler, runs) = paused();
    assert!(scheduler.get("k").is_none());
    assert_eq!(scheduler.cancel("k"), Cancel::Ended);
    let task = keyed(&scheduler).after(10 * MS, runs.work("a")).unwrap();
    let found = scheduler.get("k").unwrap();
    assert_eq!(found.name(), "k".into());
    assert_eq!(found.next_run(), task.next_run());
    assert!(scheduler.get("other").is_none());
    assert_eq!(scheduler.cancel("k"), Cancel::Cancelled);
    assert_eq!(scheduler.cancel("k"), Cancel::Ended);
    assert_eq!(found.status(), Status::Ended);
    assert!(scheduler.get("k").is_none());
    sleep(50 * MS).await;
    assert_eq!(runs.taken(), "");
}

#[tokio::test(start_paused = true)]
async fn a_name_is_shown_instead_of_the_key() {
    let (scheduler, runs) = paused();
    let named = keyed(&scheduler).name("mail").after(MS, runs.work("a"));
    assert_eq!(named.unwrap().name(), "mail".into());
    let plain = scheduler.after(MS, runs.work("b")).unwrap();
    assert_eq!(plain.name(), "task".into());
    assert_eq!(
        format!("{plain:?}"),
        r#"TaskHandle { name: "task", status: Scheduled }"#
    );
}

#[tokio::test(start_paused = true)]
async fn replacing_a_task_that_waits_for_its_place_takes_it_out_of_the_queue() {
    let (scheduler, runs) = paused();
    let first = keyed(&scheduler).after_once(10 * MS, sleep(100 * MS));
    sleep(20 * MS).await;
    let second = keyed(&scheduler)
        .after(10 * MS, runs.work("second"))
        .unwrap();
    sleep(20 * MS).await;
    assert_eq!(second.status(), Status::Due);
    let third = keyed(&scheduler)
        .after(10 * MS, runs.work("third"))
        .unwrap();
    assert_eq!(second.await, Err(TaskError::Cancelled));
    sleep(100 * MS).await;
    assert_eq!(runs.taken(), "100 third");
    assert_eq!(third.await, Ok(()));
    assert_eq!(first.unwrap().await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn w77_a_run_that_panics_or_is_cut_off_gives_the_place_of_its_key_back() {
    let (scheduler, runs) = paused();
    let panics = keyed(&scheduler).after(10 * MS, || async {
        sleep(10 * MS).await;
        assert!(Run::current().is_none(), "with the place");
    });
    let panics = panics.unwrap();
    sleep(15 * MS).await;
    let next = keyed(&scheduler).after_once(MS, std::future::pending::<()>());
    let next = next.unwrap();
    assert!(matches!(panics.await, Err(TaskError::Panicked(_))));
    sleep(10 * MS).await;
    assert_eq!(next.status(), Status::Running);
    drop(keyed(&scheduler).after(MS, runs.work("last")).unwrap());
    sleep(10 * MS).await;
    assert_eq!(runs.taken(), "");
    assert_eq!(next.abort(), Cancel::Running);
    assert_eq!(next.await, Err(TaskError::Aborted));
    sleep(MS).await;
    assert_eq!(runs.taken(), "40 last");
}

#[tokio::test(start_paused = true)]
async fn a_run_may_replace_its_own_task() {
    let (scheduler, runs) = paused();
    let work = {
        let (scheduler, runs) = (scheduler.clone(), runs.clone());
        move || {
            runs.note("first");
            drop(keyed(&scheduler).after(10 * MS, runs.work("second")));
            ready(())
        }
    };
    let first = keyed(&scheduler).every(10 * MS, work).unwrap();
    sleep(50 * MS).await;
    assert_eq!(runs.taken(), "10 first, 20 second");
    assert_eq!(first.await, Ok(()));
    assert!(scheduler.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_places_of_a_key_are_those_of_its_latest_task() {
    let (scheduler, runs) = paused();
    let slow = |name: &'static str| {
        let runs = runs.clone();
        move || {
            runs.note(name);
            sleep(100 * MS)
        }
    };
    let first = keyed(&scheduler).after(10 * MS, slow("first")).unwrap();
    sleep(20 * MS).await;
    // Two places: the second need not wait for the first.
    let options = keyed(&scheduler).max_concurrent(2);
    let second = options.after(10 * MS, slow("second")).unwrap();
    sleep(20 * MS).await;
    // One place, of which two are taken.
    let third = keyed(&scheduler).after(10 * MS, slow("third")).unwrap();
    assert_eq!((first.await, second.await), (Ok(()), Ok(())));
    third.await.unwrap();
    runs.note("end");
    assert_eq!(runs.taken(), "10 first, 30 second, 130 third, 230 end");
}

#[tokio::test(start_paused = true)]
async fn many_keys_do_not_know_each_other() {
    let (scheduler, runs) = paused();
    for n in 0..100 {
        let options = scheduler.task().key(format!("key {n}"));
        drop(options.after(10 * MS, || sleep(10 * MS)).unwrap());
    }
    drop(
        scheduler
            .task()
            .key("other")
            .after(15 * MS, runs.work("other")),
    );
    assert_eq!(scheduler.len(), 101);
    sleep(16 * MS).await;
    assert_eq!(scheduler.stats().in_progress, 100);
    assert_eq!(runs.taken(), "15 other");
    sleep(20 * MS).await;
    assert!(scheduler.is_empty());
}
