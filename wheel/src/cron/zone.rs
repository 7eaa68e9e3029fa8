//! What may be given as a time zone.

use jiff::tz::TimeZone;

use super::error::CronError;

/// A time zone, or the name of one.
///
/// [`TimeZone::system`] is the system's, by the variable `TZ` or `/etc/localtime`. Where neither says,
/// it is a zone that is not known and would behave as UTC: that one is refused.
///
/// Names are those of the IANA database (`Europe/Berlin`, `UTC`), in upper or lower case. They
/// are looked up in the copy that is built in; a program that enables jiff's feature
/// `tzdb-zoneinfo` gets those of the system first.
pub trait IntoZone {
    /// The zone.
    ///
    /// # Errors
    ///
    /// [`CronError::Zone`] if there is none of that name, [`CronError::UnknownZone`] if it is a
    /// [`TimeZone`] that stands for one which could not be found out.
    fn into_zone(self) -> Result<TimeZone, CronError>;
}

impl IntoZone for &str {
    fn into_zone(self) -> Result<TimeZone, CronError> {
        TimeZone::get(self)
            .ok()
            // `Etc/Unknown` is the name of what is refused as a `TimeZone`, too.
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
        // Its only use is to say so: as UTC it would run jobs hours off and tell nobody.
        if self.is_unknown() {
            return Err(CronError::UnknownZone);
        }
        Ok(self)
    }
}

impl IntoZone for &TimeZone {
    fn into_zone(self) -> Result<TimeZone, CronError> {
        self.clone().into_zone()
    }
}
