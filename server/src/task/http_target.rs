//! A target that is asked over HTTP: its URL, its method and its headers, each checked.

use std::fmt;
use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Uri};
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};

use super::{TaskError, refused};

/// Bytes that a URL may have.
const URL_BYTES: usize = 2_048;
/// Headers that a target may have.
const HEADERS: usize = 32;
/// Bytes that their names and values may have together.
const HEADER_BYTES: usize = 4_096;
/// Headers that say how one connection carries a message, or that the server sets itself.
const OWN_HEADERS: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const OWN_PREFIX: &str = "wheelhouse-";

/// Where a task is sent over HTTP.
///
/// The URL is `http://` or `https://`, with a host, without a user, a password or a fragment, and of
/// at most 2 048 bytes. The method is `POST`, `PUT` or `PATCH`, which carry the payload, or `GET` or
/// `DELETE`, which carry none. Up to 32 headers, of 4 KiB together, may be given once each, but none
/// of a connection, no `Host` and none that begins with `wheelhouse-`.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpTarget {
    uri: Uri,
    method: Method,
    headers: HeaderMap,
    origin: Arc<str>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpFields {
    url: String,
    method: Option<String>,
    #[serde(default)]
    headers: Pairs,
}

/// An object as it was written, with what is there twice.
#[derive(Default)]
struct Pairs(Vec<(String, String)>);

impl HttpTarget {
    pub(super) fn from_fields(fields: HttpFields) -> Result<Arc<Self>, TaskError> {
        let uri = url(&fields.url)?;
        let method = match fields.method.as_deref() {
            None | Some("POST") => Method::POST,
            Some("PUT") => Method::PUT,
            Some("PATCH") => Method::PATCH,
            Some("GET") => Method::GET,
            Some("DELETE") => Method::DELETE,
            Some(other) => {
                let allowed = "POST, PUT, PATCH, GET and DELETE";
                return Err(refused("target.http.method", other, allowed));
            }
        };
        let mut headers = headers(&fields.headers.0)?;
        let carries_payload = !matches!(method, Method::GET | Method::DELETE);
        if carries_payload && !headers.contains_key(CONTENT_TYPE) {
            let json = HeaderValue::from_static("application/json");
            headers.insert(CONTENT_TYPE, json);
        }
        let origin = origin(&uri);
        Ok(Arc::new(HttpTarget {
            uri,
            method,
            headers,
            origin,
        }))
    }

    /// The URL, whose query may hold a secret.
    #[must_use]
    pub fn url(&self) -> String {
        self.uri.to_string()
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &str {
        self.method.as_str()
    }

    /// The headers, whose values may be secrets: they are for the target alone.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.headers.iter();
        pairs.map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()))
    }

    /// Scheme, host and port: what breakers and bulkheads go by.
    #[must_use]
    pub fn origin(&self) -> &Arc<str> {
        &self.origin
    }

    /// What it takes to ask it, without a body.
    #[cfg(feature = "http")]
    pub(crate) fn parts(&self) -> (&Uri, &Method, &HeaderMap) {
        (&self.uri, &self.method, &self.headers)
    }
}

impl fmt::Debug for HttpTarget {
    /// Without what may be secret: the path, the query and the headers' values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTarget")
            .field("origin", &self.origin)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

fn url(text: &str) -> Result<Uri, TaskError> {
    let allowed = "http:// and https:// URLs of up to 2048 bytes with a host, and without a user, a \
                   password or a fragment";
    // What is refused may hold a password, so it is not repeated.
    let refuse = || TaskError::Field {
        field: "target.http.url",
        value: format!("none of these, {} bytes long", text.len()),
        allowed: allowed.to_owned(),
    };
    if text.len() > URL_BYTES || text.contains('#') {
        return Err(refuse());
    }
    let uri: Uri = text.parse().map_err(|_| refuse())?;
    let scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().ok_or_else(refuse)?;
    let (host, after) = (authority.host(), authority.as_str());
    // `host:` with an empty port is read as no port at all; so is one that is out of range.
    let port = match after.strip_prefix(host) {
        Some("") => true,
        Some(_) => authority.port_u16().is_some_and(|port| port > 0),
        None => false,
    };
    if !scheme || host.is_empty() || host == "[]" || after.contains('@') || !port {
        return Err(refuse());
    }
    Ok(uri)
}

fn headers(pairs: &[(String, String)]) -> Result<HeaderMap, TaskError> {
    let field = "target.http.headers";
    let bytes: usize = pairs.iter().map(|(name, it)| name.len() + it.len()).sum();
    if pairs.len() > HEADERS || bytes > HEADER_BYTES {
        return Err(TaskError::Field {
            field,
            value: format!("{} headers of {bytes} bytes", pairs.len()),
            allowed: format!("up to {HEADERS} headers of {HEADER_BYTES} bytes together"),
        });
    }
    let mut headers = HeaderMap::with_capacity(pairs.len());
    for (name, value) in pairs {
        let parsed = HeaderName::try_from(name.as_str())
            .map_err(|_| refused(field, name, "names of headers"))?;
        let text = parsed.as_str();
        if OWN_HEADERS.contains(&text) || text.starts_with(OWN_PREFIX) {
            let allowed = "headers that are neither of the connection nor the server's own";
            return Err(refused(field, name, allowed));
        }
        let visible = value.bytes().all(|b| matches!(b, b'\t' | b' '..=b'~'));
        let value = HeaderValue::try_from(value.as_str())
            .ok()
            .filter(|_| visible);
        // The value may be a secret, so it is not repeated.
        let value =
            value.ok_or_else(|| refused(field, name, "headers whose values are visible ASCII"))?;
        if headers.insert(parsed, value).is_some() {
            return Err(refused(field, name, "headers that are there once"));
        }
    }
    Ok(headers)
}

fn origin(uri: &Uri) -> Arc<str> {
    let scheme = uri.scheme_str().unwrap_or_default();
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    let usual = if scheme == "https" { 443 } else { 80 };
    let port = uri.port_u16().unwrap_or(usual);
    format!("{scheme}://{host}:{port}").into()
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(json: &str) -> Result<Arc<HttpTarget>, TaskError> {
        HttpTarget::from_fields(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn urls_have_a_scheme_and_a_host_and_no_secrets() {
        for (url, origin) in [
            ("http://a", "http://a:80"),
            ("https://A.example/x?y=1", "https://a.example:443"),
            ("http://a:8080/", "http://a:8080"),
            ("http://[::1]:9/", "http://[::1]:9"),
            ("http://127.0.0.1", "http://127.0.0.1:80"),
        ] {
            let target = target(&format!(r#"{{"url":"{url}"}}"#)).unwrap();
            assert_eq!(&**target.origin(), origin);
            assert_eq!(target.method(), "POST");
        }
        for url in [
            "",
            "a",
            "/a",
            "a/b",
            "//a",
            "ftp://a",
            "file:///etc/passwd",
            "http://",
            "http:///x",
            "http://u@a",
            "http://u:p@a",
            "http://@a",
            "http://a:",
            "http://a:0",
            "http://a:65536",
            "http://a:1x",
            "http://a b",
            "http://a/#f",
            "http://ä",
            "http://[]",
            "http://[::1",
            "http://a\\n",
            "javascript:alert(1)",
            "unix:/x",
        ] {
            let refused = target(&format!(r#"{{"url":"{url}"}}"#));
            let Err(TaskError::Field { field, .. }) = refused else {
                panic!("{url:?} is taken");
            };
            assert_eq!(field, "target.http.url");
        }
        let long = format!("http://a/{}", "x".repeat(URL_BYTES));
        assert!(target(&format!(r#"{{"url":"{long}"}}"#)).is_err());
    }

    #[test]
    fn headers_are_checked_and_their_values_are_not_repeated() {
        let with = |headers: &str| target(&format!(r#"{{"url":"http://a","headers":{headers}}}"#));
        let taken = with(r#"{"X-Token":"s3cret","accept":"a b\tc"}"#).unwrap();
        let all: Vec<_> = taken.headers().collect();
        assert_eq!(all[0], ("x-token", "s3cret"));
        assert!(all.contains(&("content-type", "application/json")));
        assert!(!format!("{taken:?}").contains("s3cret"));
        for headers in [
            r#"{"":"s3cret"}"#,
            r#"{"a b":"s3cret"}"#,
            r#"{"ä":"s3cret"}"#,
            r#"{"a:":"s3cret"}"#,
            r#"{"a":"s3cret\r\nb: c"}"#,
            r#"{"a":"s3cret\u0000"}"#,
            r#"{"a":"s3cretö"}"#,
            r#"{"a":"s3cret","A":"s3cret"}"#,
            r#"{"Host":"s3cret"}"#,
            r#"{"Content-Length":"0"}"#,
            r#"{"TE":"x"}"#,
            r#"{"Transfer-Encoding":"chunked"}"#,
            r#"{"Wheelhouse-Key":"x"}"#,
            r#"{"connection":"close"}"#,
        ] {
            let refused = with(headers).unwrap_err().to_string();
            assert!(!refused.contains("s3cret"), "{refused}");
        }
        let many: Vec<_> = (0..=HEADERS).map(|n| format!(r#""h{n}":"""#)).collect();
        assert!(with(&format!("{{{}}}", many.join(","))).is_err());
        assert!(with(&format!(r#"{{"a":"{}"}}"#, "x".repeat(HEADER_BYTES))).is_err());
    }

    #[test]
    fn methods_are_those_five() {
        for method in ["GET", "DELETE", "PUT", "PATCH", "POST"] {
            let json = format!(r#"{{"url":"http://a","method":"{method}"}}"#);
            assert_eq!(target(&json).unwrap().method(), method);
        }
        for method in ["", "post", "CONNECT", "TRACE", "PO ST"] {
            assert!(target(&format!(r#"{{"url":"http://a","method":"{method}"}}"#)).is_err());
        }
    }
}
