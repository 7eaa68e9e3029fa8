//! Consumers and the queue: nothing is lost, nothing is acknowledged unprocessed.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use wheelhouse_servicegroup::consume::{Consume, Queue};
use wheelhouse_servicegroup::{BuildError, Error, ServiceContext, ServiceGroup, State};

use crate::support::{builder, ms, ready, run_and_stop};

#[tokio::test(start_paused = true)]
async fn s9_after_the_stop_no_message_is_taken_and_none_is_lost() -> Result<(), BuildError> {
    let queue = Queue::new();
    for message in 0..1000_u64 {
        queue.publish(message).unwrap();
    }
    let processed = Arc::new(Mutex::new(Vec::new()));
    let mut group = builder().total(ms(10_000)).build()?;
    let handle = group.handle();
    let begun_after_stop = Arc::new(AtomicU64::new(0));
    let (late, done, stop) = (begun_after_stop.clone(), processed.clone(), handle.clone());
    let handler = move |message: Arc<u64>| {
        if stop.is_stopping() {
            late.fetch_add(1, Ordering::SeqCst);
        }
        let (done, stop) = (done.clone(), stop.clone());
        async move {
            tokio::time::sleep(ms(10)).await;
            let mut done = done.lock().unwrap();
            done.push(*message);
            if done.len() == 10 {
                stop.stop();
            }
            Ok(())
        }
    };
    group.add(
        "mq",
        Consume::new(queue.consumer(), handler)
            .concurrency(2)
            .prefetch(50),
    )?;
    let report = group.run().await;
    assert_eq!(report.exit_code(), 0);
    let stats = queue.stats();
    let processed = processed.lock().unwrap().len() as u64;
    assert_eq!(begun_after_stop.load(Ordering::SeqCst), 0);
    assert!((10..=12).contains(&processed), "{processed}");
    assert_eq!(stats.acknowledged, processed);
    assert_eq!((stats.published, stats.pending), (1000, 1000 - processed));
    assert!(stats.given_back >= 48, "{stats:?}");

    // Somebody else processes what is left.
    let rest = Arc::new(Mutex::new(HashSet::new()));
    let group = drain(&queue, rest.clone())?;
    let handle = group.handle();
    tokio::join!(group.run(), async {
        while queue.stats().pending > 0 {
            tokio::time::sleep(ms(1)).await;
        }
        handle.stop();
    });
    assert_eq!(rest.lock().unwrap().len() as u64, 1000 - processed);
    Ok(())
}

fn drain(queue: &Queue<u64>, seen: Arc<Mutex<HashSet<u64>>>) -> Result<ServiceGroup, BuildError> {
    let handler = move |message: Arc<u64>| {
        seen.lock().unwrap().insert(*message);
        std::future::ready(Ok(()))
    };
    let mut group = builder().build()?;
    group.add(
        "rest",
        Consume::new(queue.consumer(), handler).concurrency(8),
    )?;
    Ok(group)
}

#[tokio::test(start_paused = true)]
async fn s10_a_consumer_of_an_empty_queue_exits_at_once() -> Result<(), BuildError> {
    let queue = Queue::<u64>::new();
    let mut group = builder().build()?;
    group.add(
        "mq",
        Consume::new(queue.consumer(), async |_: Arc<u64>| Ok(())),
    )?;
    let report = run_and_stop(group).await;
    assert_eq!((report.total(), report.exit_code()), (ms(0), 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_is_cut_is_counted_and_given_back() -> Result<(), BuildError> {
    let queue = Queue::new();
    for message in 0..3_u64 {
        queue.publish(message).unwrap();
    }
    let mut group = builder().total(ms(2000)).build()?;
    let handler = async |_: Arc<u64>| {
        tokio::time::sleep(ms(3_600_000)).await;
        Ok(())
    };
    group.add("mq", Consume::new(queue.consumer(), handler).concurrency(2))?;
    let report = run_and_stop(group).await;
    let service = &report.services()[0];
    assert_eq!((service.state, service.cut), (Some(State::Exited), 2));
    assert_eq!(report.total(), ms(1800));
    let stats = queue.stats();
    assert_eq!((stats.acknowledged, stats.pending), (0, 3));
    Ok(())
}

/// Failures and panics are no acknowledgements: the message comes again.
#[tokio::test(start_paused = true)]
async fn what_fails_is_delivered_again() -> Result<(), BuildError> {
    let queue = Queue::new();
    for message in 0..20_u64 {
        queue.publish(message).unwrap();
    }
    let attempts = Arc::new(AtomicU64::new(0));
    let counted = attempts.clone();
    let handler = move |message: Arc<u64>| {
        let attempt = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            match attempt {
                0..5 => Err::<(), Error>("not now".into()),
                5..8 => panic!("message {message} is bad"),
                _ => Ok(()),
            }
        }
    };
    let mut group = builder().build()?;
    group.add("mq", Consume::new(queue.consumer(), handler).concurrency(3))?;
    let handle = group.handle();
    let (report, ()) = tokio::join!(group.run(), async {
        ready(&handle).await;
        while queue.stats().pending > 0 {
            tokio::time::sleep(ms(1)).await;
        }
        handle.stop();
    });
    assert_eq!(report.exit_code(), 0);
    let stats = queue.stats();
    assert_eq!((stats.acknowledged, stats.given_back), (20, 8));
    assert_eq!(attempts.load(Ordering::SeqCst), 28);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_gives_back_or_waits() {
    let queue = Queue::bounded(2);
    queue.publish(1).unwrap();
    queue.publish(2).unwrap();
    assert_eq!(queue.publish(3).unwrap_err().into_message(), 3);
    let waiting = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.publish_wait(3).await })
    };
    tokio::time::sleep(ms(100)).await;
    assert!(!waiting.is_finished());
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let group = drain(&queue, seen.clone()).unwrap();
    let handle = group.handle();
    tokio::join!(group.run(), async {
        waiting.await.unwrap();
        while queue.stats().pending > 0 {
            tokio::time::sleep(ms(1)).await;
        }
        handle.stop();
    });
    assert_eq!(*seen.lock().unwrap(), HashSet::from([1, 2, 3]));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_dropped_gives_back() {
    use wheelhouse_servicegroup::consume::Consumer as _;

    let queue = Queue::new();
    queue.publish("only").unwrap();
    let mut first = queue.consumer();
    let pulled = first.pull(10).await.unwrap();
    assert_eq!(*pulled[0].1, "only");
    let mut second = queue.consumer();
    let waits = tokio::time::timeout(ms(10), second.pull(10)).await;
    assert!(waits.is_err(), "one has it already");
    drop(first);
    assert_eq!(second.pull(10).await.unwrap().len(), 1);
    assert_eq!(queue.stats().pending, 1);
}

/// Where what is above still publishes while it drains, a consumer may go on for it.
#[tokio::test(start_paused = true)]
async fn a_drain_is_pulled_through_if_asked_for() -> Result<(), BuildError> {
    for (through, expected) in [(false, 0), (true, 1)] {
        let queue = Queue::new();
        let mut group = builder().drain(ms(200)).build()?;
        let service = Consume::new(queue.consumer(), async |_: Arc<u64>| Ok(()));
        group.add("mq", service.pulls_while_draining(through))?;
        let late = queue.clone();
        group.add("api", async move |ctx: ServiceContext| {
            ctx.ready();
            ctx.draining().await;
            tokio::time::sleep(ms(100)).await;
            late.publish(1).unwrap();
            ctx.stopping().await;
            Ok(())
        })?;
        let report = run_and_stop(group).await;
        assert_eq!(report.exit_code(), 0);
        assert_eq!(queue.stats().acknowledged, expected);
    }
    Ok(())
}
