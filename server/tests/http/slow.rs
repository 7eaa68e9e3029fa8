//! Clients that take their time: they are told so, and nobody else notices.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use wheelhouse_server::http::Settings;

use super::{HANG, Running, read};

const LATER: &str = r#"{"delay":"1h","target":{"topic":"t"}}"#;

#[tokio::test]
async fn a_body_that_does_not_come_is_told_so() {
    let settings = Settings::new().body_timeout(Duration::from_millis(200));
    let server = Running::start(settings).await;
    for (method, path, kind) in [
        ("PUT", "/v1/tasks/a", "application/json"),
        ("PATCH", "/v1/tasks/a", "application/json"),
    ] {
        let mut stream = server.connect().await;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ncontent-length: 100\r\n\r\n{{\"del"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // The connection ends with it, or this would hang.
        let answer = read(&mut stream).await;
        assert_eq!(
            (answer.status, answer.problem().as_str()),
            (408, "slow-body")
        );
    }
    let mut stream = server.connect().await;
    let head = "POST /v1/tasks:batch HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                content-type: application/x-ndjson\r\ncontent-length: 100\r\n\r\n{\"key\":";
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read(&mut stream).await;
    assert_eq!(
        (answer.status, answer.value()["status"].as_u64()),
        (200, Some(408))
    );
    server.stop().await;
}

#[tokio::test]
async fn slow_clients_slow_nobody_else() {
    let server = Running::start(Settings::new()).await;
    let mut slow = Vec::new();
    for n in 0..200 {
        let mut stream = server.connect().await;
        let begun: &[u8] = match n % 4 {
            0 => b"",
            1 => b"PUT /v1/ta",
            2 => b"PUT /v1/tasks/a HTTP/1.1\r\nhost: x\r\nx-a: b\r\n",
            _ => {
                b"PUT /v1/tasks/a HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                   content-length: 1000\r\n\r\n{\"delay\":"
            }
        };
        stream.write_all(begun).await.unwrap();
        slow.push(stream);
    }
    // Ten seconds would be what a slow body may take.
    let others = async {
        for n in 0..100 {
            let answer = server.json("PUT", &format!("/v1/tasks/k{n}"), LATER).await;
            assert_eq!(answer.status, 201);
        }
    };
    tokio::time::timeout(Duration::from_secs(8), others)
        .await
        .expect("others were slowed");
    // What they had begun when they leave is of no effect.
    drop(slow);
    assert_eq!(server.ask("GET", "/v1/tasks/a", "", "").await.status, 404);
    tokio::time::timeout(HANG, server.stop()).await.unwrap();
}
