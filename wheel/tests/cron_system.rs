//! The system's time zone: found where it is said, refused where it is not. Each case is a process of
//! its own, since the zone is read from the environment and kept for a while.
#![cfg(feature = "cron")]

mod support {
    pub(crate) mod again;
}

use support::again::{again, answer, answers};
use wheelhouse_wheel::cron::{Cron, CronError, IntoZone, TimeZone, Timestamp};

/// What a process with this `TZ` makes of its own zone.
fn with_tz(tz: &str) -> String {
    again("in_a_process_of_its_own", &[("TZ", tz)])
}

#[test]
fn in_a_process_of_its_own() {
    if !answers() {
        return;
    }
    let answered = match Cron::new("30 9 * * *", TimeZone::system()) {
        Ok(cron) => {
            let after: Timestamp = "2024-07-01T00:00:00Z".parse().unwrap();
            cron.next_after(after).unwrap().to_string()
        }
        Err(error) => error.to_string(),
    };
    answer(&answered);
}

#[test]
fn the_systems_zone_is_that_of_tz() {
    assert_eq!(with_tz("Europe/Berlin"), "2024-07-01T07:30:00Z");
    assert_eq!(with_tz("America/New_York"), "2024-07-01T13:30:00Z");
    assert_eq!(with_tz("UTC"), "2024-07-01T09:30:00Z");
}

#[test]
fn a_system_whose_zone_is_not_known_is_refused() {
    assert_eq!(
        with_tz("Mars/Olympus"),
        "time zone: the system's is not known; set TZ to an IANA name such as Europe/Berlin, or name one"
    );
}

#[test]
fn a_zone_that_stands_for_none_is_refused() {
    let unknown = TimeZone::unknown();
    assert_eq!((&unknown).into_zone().unwrap_err(), CronError::UnknownZone);
    let refused = Cron::new("0 9 * * *", unknown).unwrap_err();
    assert_eq!(refused, CronError::UnknownZone);
    assert!(Cron::new("0 9 * * *", TimeZone::UTC).is_ok());
}
