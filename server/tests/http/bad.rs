//! Requests that are wrong, each with the exact status and problem type of its answer.

use wheelhouse_server::http::Settings;

use super::Running;

/// A body for `PUT /v1/tasks/a`, the status, the type, and the field that is to blame.
type Row<'a> = (&'a [u8], u16, &'a str, &'a str);

const BODIES: &[Row<'_>] = &[
    (b"", 400, "malformed", ""),
    (b"{", 400, "malformed", ""),
    (b"null", 400, "malformed", ""),
    (b"[]", 400, "malformed", ""),
    (
        br#"[null,"1s",null,null,null,null,{"topic":"t"},1,null,null]"#,
        400,
        "malformed",
        "",
    ),
    (b"\"x\"", 400, "malformed", ""),
    (b"17", 400, "malformed", ""),
    (b"{}", 400, "malformed", ""),
    (
        br#"{"delay":"1s","target":{"topic":"t"}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t"}} {}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t"},}"#,
        400,
        "malformed",
        "",
    ),
    (br#"{'delay':'1s'}"#, 400, "malformed", ""),
    (
        br#"{"delay":"1s","target":{"topic":"t"},"extra":1}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"1s","delay":"1s","target":{"topic":"t"}}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"Delay":"1s","target":{"topic":"t"}}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "schedule",
    ),
    (
        br#"{"delay":"1s","every":"1s","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "schedule",
    ),
    (
        br#"{"delay":1,"target":{"topic":"t"}}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "delay",
    ),
    (
        br#"{"delay":"soon","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "delay",
    ),
    (
        br#"{"delay":"-1s","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "delay",
    ),
    (
        br#"{"delay":"99999999999999999999s","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "delay",
    ),
    (
        br#"{"delay":"36526days","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "delay",
    ),
    (
        br#"{"at":"yesterday","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "at",
    ),
    (
        br#"{"at":"2024-02-30T00:00:00Z","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "at",
    ),
    (
        br#"{"at":"2024-01-01T00:00:00","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "at",
    ),
    (
        br#"{"at":1700000000,"target":{"topic":"t"}}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"every":"9ms","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "every",
    ),
    (
        br#"{"every":"0s","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "every",
    ),
    (
        br#"{"cron":"now and then","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "cron",
    ),
    (
        br#"{"cron":"61 * * * *","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "cron",
    ),
    (
        br#"{"cron":"0 0 30 2 *","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "cron",
    ),
    (
        br#"{"cron":"0 0 * * *","tz":"Mars/Phobos","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "cron",
    ),
    (
        br#"{"cron":"0 0 * * *","tz":"../../etc/passwd","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "cron",
    ),
    (
        br#"{"delay":"1s","tz":"UTC","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "tz",
    ),
    (br#"{"delay":"1s"}"#, 400, "malformed", ""),
    (br#"{"delay":"1s","target":null}"#, 400, "malformed", ""),
    (br#"{"delay":"1s","target":"topic"}"#, 400, "malformed", ""),
    (br#"{"delay":"1s","target":{}}"#, 400, "malformed", ""),
    (
        br#"{"delay":"1s","target":{"mail":"t"}}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t","http":{"url":"http://a"}}}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"1s","target":{"topic":7}}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"1s","target":{"topic":""}}"#,
        400,
        "not-allowed",
        "target.topic",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"wheelhouse:tasks"}}"#,
        400,
        "not-allowed",
        "target.topic",
    ),
    (
        br#"{"delay":"1s","target":{"http":{}}}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"1s","target":{"http":{"url":"ftp://a"}}}"#,
        400,
        "not-allowed",
        "target.http.url",
    ),
    (
        br#"{"delay":"1s","target":{"http":{"url":"http://u:p@a"}}}"#,
        400,
        "not-allowed",
        "target.http.url",
    ),
    (
        br#"{"delay":"1s","target":{"http":{"url":"http://a","method":"TRACE"}}}"#,
        400,
        "not-allowed",
        "target.http.method",
    ),
    (
        br#"{"delay":"1s","target":{"http":{"url":"http://a","headers":{"Host":"b"}}}}"#,
        400,
        "not-allowed",
        "target.http.headers",
    ),
    (
        br#"{"delay":"1s","target":{"http":{"url":"http://a","headers":{"a":"b\r\nc: d"}}}}"#,
        400,
        "not-allowed",
        "target.http.headers",
    ),
    (
        br#"{"delay":"1s","target":{"http":{"url":"http://a","headers":{"a":1}}}}"#,
        400,
        "malformed",
        "",
    ),
    // A server without HTTP targets, as the one here.
    (
        br#"{"delay":"1s","target":{"http":{"url":"http://a"}}}"#,
        400,
        "not-allowed",
        "target.http",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t"},"retry":{"max_attempts":0}}"#,
        400,
        "not-allowed",
        "retry.max_attempts",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t"},"retry":{"max_attempts":101}}"#,
        400,
        "not-allowed",
        "retry.max_attempts",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t"},"retry":{"max_attempts":-1}}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t"},"retry":{"max_attempts":1.5}}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t"},"retry":{"max_attempts":1e400}}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t"},"retry":{"max_attempts":99999999999999999999}}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t"},"retry":{"base":"0s"}}"#,
        400,
        "not-allowed",
        "retry.base",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t"},"retry":{"base":"2s","max":"1s"}}"#,
        400,
        "not-allowed",
        "retry.max",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t"},"retry":{"jitter":1}}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t"},"ttl":"for ever"}"#,
        400,
        "not-allowed",
        "ttl",
    ),
    (
        br#"{"key":"a","delay":"1s","target":{"topic":"t"}}"#,
        400,
        "not-allowed",
        "key",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t"},"payload":01}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t"},"payload":NaN}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"t"},"payload":[1,]}"#,
        400,
        "malformed",
        "",
    ),
    (
        br#"{"delay":"1s","target":{"topic":"\ud800"}}"#,
        400,
        "malformed",
        "",
    ),
    (
        b"{\"delay\":\"1s\",\"target\":{\"topic\":\"\xff\"}}",
        400,
        "malformed",
        "",
    ),
    (
        b"{\"delay\":\"1s\",\"target\":{\"topic\":\"t\"},\"payload\":\"\xc3\"}",
        400,
        "malformed",
        "",
    ),
    (
        b"{\"delay\":\"1s\",\"target\":{\"topic\":\"a\nb\"}}",
        400,
        "malformed",
        "",
    ),
    (
        b"\xef\xbb\xbf{\"delay\":\"1s\",\"target\":{\"topic\":\"t\"}}",
        400,
        "malformed",
        "",
    ),
    (b"\0", 400, "malformed", ""),
];

/// Method, path, headers, body, status, type.
type Request<'a> = (&'a str, &'a str, &'a str, &'a str, u16, &'a str);

pub(super) const JSON: &str = "content-type: application/json\r\n";
pub(super) const GOOD: &str = r#"{"delay":"1h","target":{"topic":"t"}}"#;

const REQUESTS: &[Request<'_>] = &[
    // What it is said to be.
    ("PUT", "/v1/tasks/a", "", GOOD, 415, "wrong-type"),
    (
        "PUT",
        "/v1/tasks/a",
        "content-type: text/plain\r\n",
        GOOD,
        415,
        "wrong-type",
    ),
    (
        "PUT",
        "/v1/tasks/a",
        "content-type: application/x-www-form-urlencoded\r\n",
        GOOD,
        415,
        "wrong-type",
    ),
    (
        "PUT",
        "/v1/tasks/a",
        "content-type: application/json\r\ncontent-type: application/json\r\n",
        GOOD,
        415,
        "wrong-type",
    ),
    ("PATCH", "/v1/tasks/a", "", "{}", 415, "wrong-type"),
    ("POST", "/v1/tasks:batch", "", GOOD, 415, "wrong-type"),
    (
        "POST",
        "/v1/tasks:batch",
        "content-type: text/csv\r\n",
        GOOD,
        415,
        "wrong-type",
    ),
    // Paths and keys.
    ("PUT", "/v1/tasks/%", JSON, GOOD, 400, "bad-path"),
    ("PUT", "/v1/tasks/%4", JSON, GOOD, 400, "bad-path"),
    ("PUT", "/v1/tasks/%zz", JSON, GOOD, 400, "bad-path"),
    ("PUT", "/v1/tasks/%ff", JSON, GOOD, 400, "bad-path"),
    ("PUT", "/v1/tasks/%c3%28", JSON, GOOD, 400, "bad-path"),
    ("PUT", "/v1/tasks/", JSON, GOOD, 404, "no-such-path"),
    ("PUT", "/v1/tasks/a/b", JSON, GOOD, 404, "no-such-path"),
    (
        "PUT",
        "/v1/tasks/../tasks/a",
        JSON,
        GOOD,
        404,
        "no-such-path",
    ),
    ("PUT", "/v1//tasks/a", JSON, GOOD, 404, "no-such-path"),
    ("PUT", "/V1/tasks/a", JSON, GOOD, 404, "no-such-path"),
    ("GET", "/", "", "", 404, "no-such-path"),
    ("GET", "/v2/tasks", "", "", 404, "no-such-path"),
    ("GET", "/v1/tasks/", "", "", 404, "no-such-path"),
    ("GET", "/v1/../../etc/passwd", "", "", 404, "no-such-path"),
    ("GET", "/v1/tasks/nobody", "", "", 404, "no-such-task"),
    ("DELETE", "/v1/tasks/nobody", "", "", 404, "no-such-task"),
    (
        "PATCH",
        "/v1/tasks/nobody",
        JSON,
        r#"{"delay":"1s"}"#,
        404,
        "no-such-task",
    ),
    // Methods.
    ("POST", "/v1/tasks/a", JSON, GOOD, 405, "wrong-method"),
    ("PUT", "/v1/tasks", JSON, GOOD, 405, "wrong-method"),
    ("DELETE", "/v1/tasks", "", "", 405, "wrong-method"),
    ("GET", "/v1/tasks:batch", "", "", 405, "wrong-method"),
    ("POST", "/v1/events", "", "", 405, "wrong-method"),
    ("PUT", "/v1/dead", "", "", 405, "wrong-method"),
    ("GET", "/v1/dead/1/requeue", "", "", 405, "wrong-method"),
    ("TRACE", "/v1/tasks/a", "", "", 405, "wrong-method"),
    ("OPTIONS", "/v1/tasks", "", "", 405, "wrong-method"),
    ("BREW", "/v1/tasks", "", "", 405, "wrong-method"),
    // Moves.
    ("PATCH", "/v1/tasks/a", JSON, "", 400, "malformed"),
    ("PATCH", "/v1/tasks/a", JSON, "[]", 400, "malformed"),
    ("PATCH", "/v1/tasks/a", JSON, "{}", 400, "not-allowed"),
    (
        "PATCH",
        "/v1/tasks/a",
        JSON,
        r#"{"delay":"1s","at":"2030-01-01T00:00:00Z"}"#,
        400,
        "not-allowed",
    ),
    (
        "PATCH",
        "/v1/tasks/a",
        JSON,
        r#"{"delay":"1 fortnight"}"#,
        400,
        "not-allowed",
    ),
    (
        "PATCH",
        "/v1/tasks/a",
        JSON,
        r#"{"every":"1s"}"#,
        400,
        "malformed",
    ),
    // Queries.
    ("GET", "/v1/tasks?limit=0", "", "", 400, "bad-query"),
    ("GET", "/v1/tasks?limit=1001", "", "", 400, "bad-query"),
    ("GET", "/v1/tasks?limit=-1", "", "", 400, "bad-query"),
    ("GET", "/v1/tasks?limit=+1", "", "", 400, "bad-query"),
    ("GET", "/v1/tasks?limit=", "", "", 400, "bad-query"),
    (
        "GET",
        "/v1/tasks?limit=99999999999999999999",
        "",
        "",
        400,
        "bad-query",
    ),
    ("GET", "/v1/tasks?limit=1&limit=2", "", "", 400, "bad-query"),
    ("GET", "/v1/tasks?page=2", "", "", 400, "bad-query"),
    ("GET", "/v1/tasks?prefix=%ff", "", "", 400, "bad-query"),
    ("GET", "/v1/tasks?prefix=%", "", "", 400, "bad-query"),
    ("GET", "/v1/events?limit=1", "", "", 400, "bad-query"),
    ("GET", "/v1/dead?cursor=x", "", "", 400, "bad-query"),
    // Dead letters.
    ("DELETE", "/v1/dead/x", "", "", 400, "bad-path"),
    ("DELETE", "/v1/dead/-1", "", "", 400, "bad-path"),
    (
        "DELETE",
        "/v1/dead/99999999999999999999",
        "",
        "",
        400,
        "bad-path",
    ),
    ("DELETE", "/v1/dead/7", "", "", 404, "no-such-letter"),
    ("POST", "/v1/dead/7/requeue", "", "", 404, "no-such-letter"),
    // Idempotency keys.
    (
        "DELETE",
        "/v1/tasks/a",
        "idempotency-key: \r\n",
        "",
        400,
        "bad-idempotency-key",
    ),
    (
        "DELETE",
        "/v1/tasks/a",
        "idempotency-key: a b\r\n",
        "",
        400,
        "bad-idempotency-key",
    ),
    (
        "DELETE",
        "/v1/tasks/a",
        "idempotency-key: a\r\nidempotency-key: a\r\n",
        "",
        400,
        "bad-idempotency-key",
    ),
];

#[tokio::test]
async fn each_bad_request_has_its_status_and_its_type() {
    let server = Running::start(Settings::new()).await;
    for (body, status, kind, field) in BODIES {
        let answer = server.ask("PUT", "/v1/tasks/a", JSON, body).await;
        let shown = String::from_utf8_lossy(body);
        assert_eq!(
            (answer.status, &*answer.problem()),
            (*status, *kind),
            "{shown}"
        );
        let blamed = answer.value()["field"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert_eq!(blamed, *field, "{shown}");
    }
    for row @ (method, path, headers, body, status, kind) in REQUESTS {
        let answer = server.ask(method, path, headers, body).await;
        assert_eq!(
            (answer.status, &*answer.problem()),
            (*status, *kind),
            "{row:?}"
        );
        let lists = answer.head.lines().any(|line| line.starts_with("allow: "));
        assert_eq!(lists, *status == 405, "{row:?}");
    }
    assert!(
        server
            .engine
            .find(&wheelhouse_server::task::Key::new("a").unwrap())
            .is_none()
    );
    // It is as it was.
    assert_eq!(
        server.ask("PUT", "/v1/tasks/a", JSON, GOOD).await.status,
        201
    );
    server.stop().await;
}

#[tokio::test]
async fn what_is_odd_but_right_is_taken() {
    let server = Running::start(Settings::new()).await;
    let deep = format!(
        r#"{{"delay":"1h","target":{{"topic":"t"}},"payload":{}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let bodies: &[&str] = &[
        // An instant that has passed is due at once.
        r#"{"at":"1970-01-01T00:00:00Z","target":{"topic":"t"}}"#,
        r#" {"delay":"1h 30m","target":{"topic":"t"},"payload":null} "#,
        r#"{"delay":"1h","target":{"topic":"t"},"payload":1e400}"#,
        r#"{"delay":"1h","target":{"topic":"\u0000"},"payload":"\ud800"}"#,
        r#"{"cron":"0 0 29 2 *","tz":"Europe/Berlin","target":{"topic":"t"}}"#,
        &deep,
    ];
    for (n, body) in bodies.iter().enumerate() {
        let shown: String = body.chars().take(80).collect();
        let answer = server
            .ask("PUT", &format!("/v1/tasks/{n}"), JSON, body)
            .await;
        assert_eq!(answer.status, 201, "{shown}: {}", answer.body);
    }
    for kind in [
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/merge-patch+json",
    ] {
        let header = format!("content-type: {kind}\r\n");
        assert!(
            server.ask("PUT", "/v1/tasks/x", &header, GOOD).await.status < 300,
            "{kind}"
        );
    }
    for key in [
        "..",
        ".",
        "%00",
        "%2e%2e%2fetc",
        "a%3Fb",
        ";x=1",
        "%25",
        "a:b",
    ] {
        let path = format!("/v1/tasks/{key}");
        assert_eq!(
            server.ask("PUT", &path, JSON, GOOD).await.status,
            201,
            "{key}"
        );
        assert_eq!(server.ask("GET", &path, "", "").await.status, 200, "{key}");
    }
    server.stop().await;
}
