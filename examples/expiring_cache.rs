//! Sessions that end an hour after their last use and a day after they began, whatever is asked: who
//! left, and why, is told once for each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wheelhouse::cache::{Cache, Cause};
use wheelhouse::wheel::ManualClock;

const HOUR: Duration = Duration::from_secs(3600);
const USERS: u32 = 1_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Without a clock of its own a cache takes the system's; this one is moved by hand.
    let clock = ManualClock::new();
    let causes = Arc::new(Mutex::new(BTreeMap::<String, u32>::new()));
    let told = causes.clone();
    let sessions = Cache::<u32, String>::builder()
        .name("sessions")
        .capacity(800)
        .time_to_live(24 * HOUR)
        .time_to_idle(HOUR)
        .clock(clock.clone())
        .listener(move |event| {
            // Outside every lock: it could use the cache.
            let cause = format!("{:?}", event.cause);
            *told.lock().unwrap().entry(cause).or_default() += 1;
            assert!(event.cause != Cause::Expired || event.time_left == Some(Duration::ZERO));
        })
        .build()?;

    for user in 0..USERS {
        sessions.set(user, format!("session of user {user}"))?;
    }
    println!("{USERS} sessions begun, {} kept", sessions.len());

    // Those of the last hundred users go on for a day, and no longer.
    let mut hours = 0;
    let active = (USERS - 100)..USERS;
    let mut online = active
        .clone()
        .filter(|user| sessions.contains(user))
        .count();
    println!("{online} of the last hundred are kept and stay active");
    while online > 0 {
        clock.advance(HOUR / 2);
        hours += 1;
        online = active
            .clone()
            .filter(|user| sessions.get(user).is_some())
            .count();
    }
    println!("all of these ended after {} hours", hours / 2);

    // What has expired is invisible at once; memory is given back in steps, here all at once.
    let reclaimed = sessions.run_pending(usize::MAX);
    println!("{reclaimed} reclaimed at the end, {} left", sessions.len());
    println!("{:?}", causes.lock().unwrap());
    println!("{}", sessions.report());
    Ok(())
}
