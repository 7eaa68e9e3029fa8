//! What may be given as a time zone.

use jiff::tz::TimeZone;

use super::error::CronError;

/// A time zone, or the name of one.
///
/// Names are those of the IANA database (`Europe/Berlin`, `UTC`), in upper or lower case. They
/// are looked up in the copy that is built in; a program that enables jiff's feature
/// `tzdb-zoneinfo` gets those of the system first.
pub trait IntoZone {
    /// The zone.
    ///
    /// # Errors
    ///
    /// [`CronError::Zone`] if there is none of that name.
    fn into_zone(self) -> Result<TimeZone, CronError>;
}

impl IntoZone for &str {
    fn into_zone(self) -> Result<TimeZone, CronError> {
        TimeZone::get(self)
            .ok()
            // `Etc/Unknown` stands for a zone that could not be found out, and behaves as UTC.
            .filter(|zone| !zone.is_unknown())
            .ok_or_else(|| CronError::Zone {
                name: self.to_owned(),
            })
    }
}

impl IntoZone for &String {
    fn into_zone(self) -> Result<TimeZone, CronError> {
        self.as_str().into_zone()
    }
}

impl IntoZone for String {
    fn into_zone(self) -> Result<TimeZone, CronError> {
        self.as_str().into_zone()
    }
}

impl IntoZone for TimeZone {
    fn into_zone(self) -> Result<TimeZone, CronError> {
        Ok(self)
    }
}

impl IntoZone for &TimeZone {
    fn into_zone(self) -> Result<TimeZone, CronError> {
        Ok(self.clone())
    }
}
