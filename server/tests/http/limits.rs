//! What is too large, and what is no HTTP.

use wheelhouse_server::http::{MAX_BODY, Settings};

use super::Running;
use super::bad::{GOOD, JSON};

#[tokio::test]
async fn what_is_too_large_is_refused() {
    let server = Running::start(Settings::new()).await;
    let with = |payload: &str| {
        format!(r#"{{"delay":"1h","target":{{"topic":"t"}},"payload":"{payload}"}}"#)
    };
    let empty = with("").len();
    let (fits, over) = (
        with(&"x".repeat(MAX_BODY - empty)),
        with(&"x".repeat(MAX_BODY - empty + 1)),
    );
    assert_eq!(
        server.ask("PUT", "/v1/tasks/a", JSON, &fits).await.status,
        201
    );
    let large = server.ask("PUT", "/v1/tasks/a", JSON, &over).await;
    assert_eq!((large.status, large.problem().as_str()), (413, "too-large"));
    // In chunks, so that it is not said beforehand.
    let mut chunked = format!(
        "PUT /v1/tasks/a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{JSON}transfer-encoding: chunked\r\n\r\n"
    );
    for _ in 0..17 {
        chunked += &format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    }
    chunked += "0\r\n\r\n";
    let large = server.send(chunked.as_bytes()).await;
    assert_eq!((large.status, large.problem().as_str()), (413, "too-large"));
    // Who asks first is told first.
    let asks = format!(
        "PUT /v1/tasks/a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{JSON}expect: 100-continue\r\ncontent-length: 99999999\r\n\r\n"
    );
    assert_eq!(server.send(asks.as_bytes()).await.status, 413);

    let name = "x".repeat(257);
    let answer = server
        .ask("PUT", &format!("/v1/tasks/{name}"), JSON, GOOD)
        .await;
    assert_eq!(
        (answer.status, answer.problem().as_str()),
        (400, "not-allowed")
    );
    let topic = format!(r#"{{"delay":"1s","target":{{"topic":"{name}"}}}}"#);
    let answer = server.ask("PUT", "/v1/tasks/a", JSON, topic).await;
    assert_eq!(answer.value()["field"], "target.topic");
    let key = format!("idempotency-key: {name}\r\n");
    assert_eq!(
        server
            .ask("DELETE", "/v1/tasks/a", &key, "")
            .await
            .problem(),
        "bad-idempotency-key"
    );

    let header = format!("x: {}\r\n", "y".repeat(16 * 1_024));
    let head = server.ask("GET", "/v1/tasks", &header, "").await;
    assert_eq!(
        (head.status, head.problem().as_str()),
        (431, "head-too-large")
    );
    let path = format!("/v1/tasks?prefix={}", "y".repeat(17 * 1_024));
    assert_eq!(
        server.ask("GET", &path, "", "").await.problem(),
        "head-too-large"
    );
    let many: String = (0..90)
        .map(|n| format!("h{n}: {}\r\n", "z".repeat(200)))
        .collect();
    assert_eq!(
        server.ask("GET", "/v1/tasks", &many, "").await.problem(),
        "head-too-large"
    );
    // These are HTTP's own, and have no body.
    let bomb: String = (0..5_000).map(|n| format!("h{n}: z\r\n")).collect();
    assert_eq!(server.ask("GET", "/v1/tasks", &bomb, "").await.status, 431);
    server.stop().await;
}

#[tokio::test]
async fn what_is_no_http_is_refused() {
    let server = Running::start(Settings::new()).await;
    for bytes in [
        "\r\n\r\nnonsense\r\n\r\n",
        "GET /v1/tasks HTTP/9.9\r\nhost: x\r\n\r\n",
        "GET /v1/ta sks HTTP/1.1\r\nhost: x\r\n\r\n",
        "GET /v1/tasks HTTP/1.1\r\nbad header\r\n\r\n",
        "GET /v1/tasks HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        "PUT /v1/tasks/a HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    ] {
        assert_eq!(server.send(bytes.as_bytes()).await.status, 400, "{bytes:?}");
    }
    let chunk = format!(
        "PUT /v1/tasks/a HTTP/1.1\r\nhost: x\r\n{JSON}transfer-encoding: chunked\r\n\r\nzz\r\n{{}}\r\n"
    );
    let broken = server.send(chunk.as_bytes()).await;
    assert_eq!(
        (broken.status, broken.problem().as_str()),
        (400, "broken-body")
    );
    server.stop().await;
}
