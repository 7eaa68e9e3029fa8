//! Values as people write them. Each parser gives what is allowed where the value is not.

use std::net::SocketAddr;
use std::time::Duration;

/// Shortest and longest token: one can be guessed, the other is no token.
const TOKEN: std::ops::RangeInclusive<usize> = 16..=512;

pub(super) fn whole(text: &str, min: usize, max: usize) -> Result<usize, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("a whole number in {min}..={max}"))
}

pub(super) fn duration(text: &str, min: Duration, max: Duration) -> Result<Duration, String> {
    let parsed = humantime::parse_duration(text).ok();
    parsed
        .filter(|duration| (min..=max).contains(duration))
        .ok_or_else(|| {
            let (min, max) = (
                humantime::format_duration(min),
                humantime::format_duration(max),
            );
            format!("a duration in {min}..={max} (write 10s, 500ms or 1m 30s)")
        })
}

pub(super) fn truth(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("true or false".to_owned()),
    }
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "an address and a port (write 127.0.0.1:8080 or [::1]:8080)".to_owned())
}

pub(super) fn token(text: &str) -> Result<String, String> {
    let fits = TOKEN.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    match fits {
        true => Ok(text.to_owned()),
        false => Err("16 to 512 visible ASCII characters".to_owned()),
    }
}

/// `memory`, which is `None`, or the address of a Redis server.
pub(super) fn broker(text: &str) -> Result<Option<String>, String> {
    if text == "memory" {
        return Ok(None);
    }
    match crate::mq::RedisTopics::new(text) {
        Ok(_) => Ok(Some(text.to_owned())),
        Err(_) => Err("memory, or redis://[user:password@]host:port[/database]".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_tokens_keep_to_their_ranges() {
        assert_eq!(whole("7", 1, 7), Ok(7));
        for text in [
            "",
            "0",
            "8",
            "+7",
            "7.0",
            " 7",
            "0x7",
            "7e0",
            "99999999999999999999",
        ] {
            assert_eq!(whole(text, 1, 7), Err("a whole number in 1..=7".to_owned()));
        }
        token(&"t".repeat(15)).unwrap_err();
        token(&"t".repeat(16)).unwrap();
        token(&"t".repeat(512)).unwrap();
        token(&"t".repeat(513)).unwrap_err();
        token("spaces are no part of it").unwrap_err();
        token("neither are umläute").unwrap_err();
    }
}
