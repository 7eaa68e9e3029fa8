//! `recloser`: the recloser crate, a ring of the last outcomes under a spin lock.
//!
//! Settings: its defaults, a hundred calls and an error rate of 0.5, which read no clock while
//! closed; `call`, since the library pins its epoch once in it for both steps. Open lasts an hour.

use std::time::Duration;

use recloser::Error;

use super::{CallBreaker, Opens};

/// The adapter.
#[derive(Debug)]
pub struct Recloser(recloser::Recloser);

impl CallBreaker for Recloser {
    fn new() -> Self {
        let hour = Duration::from_secs(3600);
        Self(recloser::Recloser::custom().open_wait(hour).build())
    }

    #[inline]
    fn call(&self, number: u64, fails: bool) -> Option<u64> {
        match self.0.call(|| if fails { Err(number) } else { Ok(number) }) {
            Ok(number) | Err(Error::Inner(number)) => Some(number),
            Err(Error::Rejected) => None,
        }
    }
}

impl Opens for Recloser {}
