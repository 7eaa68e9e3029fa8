//! Expressions of cron and the times they name.
#![cfg(feature = "cron")]

#[path = "../support"]
mod support {
    pub(crate) mod cron_model;
    pub(crate) mod cron_text;
    pub(crate) mod within;
}

mod agreement;
mod cases;
mod errors;
mod model;
mod zones;
