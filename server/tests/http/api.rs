//! What the API does when it is asked rightly.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use wheelhouse_server::engine::{Engine, InProcess, Message, PublishError, Publishing, Topics};
use wheelhouse_server::http::Settings;

use super::{HANG, Running, read};

const LATER: &str = r#"{"delay":"1h","target":{"topic":"t"},"payload":{"a":[1,2.50]}}"#;

/// Topics that take nothing.
struct Broken;

impl Topics for Broken {
    fn publish(&self, _: Message) -> Publishing<'_> {
        Box::pin(async { Err(PublishError("the broker is away".to_owned())) })
    }
}

#[tokio::test]
async fn a_task_from_its_creation_to_its_end() {
    let server = Running::start(Settings::new()).await;
    let path = "/v1/tasks/order%2F7%20%C3%BC";
    let made = server.json("PUT", path, LATER).await;
    assert_eq!(made.status, 201);
    assert!(made.has(&format!("location: {path}")), "{}", made.head);
    assert_eq!(made.body, r#"{"key":"order/7 ü","result":"created"}"#);
    let replaced = server.json("PUT", path, LATER).await;
    assert_eq!(
        (replaced.status, replaced.value()["result"].as_str()),
        (200, Some("replaced"))
    );

    let found = server.ask("GET", path, "", "").await;
    let task = found.value();
    assert_eq!(
        (found.status, task["key"].as_str()),
        (200, Some("order/7 ü"))
    );
    assert_eq!(task["target"]["topic"], "t");
    // As it was written, to the last digit.
    assert!(
        found.body.contains(r#""payload":{"a":[1,2.50]}"#),
        "{}",
        found.body
    );

    let moved = server
        .json("PATCH", path, r#"{"at":"2099-01-01T00:00:00Z"}"#)
        .await;
    assert_eq!(
        (moved.status, moved.value()["next"].as_str()),
        (200, Some("2099-01-01T00:00:00Z"))
    );
    let gone = server.ask("DELETE", path, "", "").await;
    assert_eq!(gone.body, r#"{"key":"order/7 ü","under_way":false}"#);
    for method in ["GET", "DELETE"] {
        let none = server.ask(method, path, "", "").await;
        assert_eq!(
            (none.status, none.problem().as_str()),
            (404, "no-such-task")
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn pages_follow_each_other_and_leave_nothing_out() {
    let server = Running::start(Settings::new()).await;
    for n in 0..25 {
        server
            .json("PUT", &format!("/v1/tasks/p{n:02}"), LATER)
            .await;
    }
    server.json("PUT", "/v1/tasks/q", LATER).await;
    let (mut keys, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/tasks?prefix=p&limit=10{cursor}");
        let page = server.ask("GET", &path, "", "").await.value();
        let tasks = page["tasks"].as_array().unwrap();
        keys.extend(
            tasks
                .iter()
                .map(|it| it["key"].as_str().unwrap().to_owned()),
        );
        match page["cursor"].as_str() {
            Some(last) => cursor = format!("&cursor={last}"),
            None => break,
        }
    }
    let all: Vec<_> = (0..25).map(|n| format!("p{n:02}")).collect();
    assert_eq!(keys, all);

    // Pages of large tasks are cut, and go on where they were.
    let large = format!(
        r#"{{"delay":"1h","target":{{"topic":"t"}},"payload":"{}"}}"#,
        "x".repeat(1_000_000)
    );
    for n in 0..6 {
        server.json("PUT", &format!("/v1/tasks/r{n}"), &large).await;
    }
    let page = server
        .ask("GET", "/v1/tasks?prefix=r", "", "")
        .await
        .value();
    assert_eq!(page["tasks"].as_array().unwrap().len(), 5);
    assert_eq!(page["cursor"], "r4");
    server.stop().await;
}

#[tokio::test]
async fn the_same_idempotency_key_gets_the_same_answer() {
    let server = Running::start(Settings::new()).await;
    let with = |key: &str| format!("content-type: application/json\r\nidempotency-key: {key}\r\n");
    let first = server.ask("PUT", "/v1/tasks/a", &with("k1"), LATER).await;
    assert!(first.status == 201 && !first.has("idempotency-replayed: true"));
    let again = server.ask("PUT", "/v1/tasks/a", &with("k1"), LATER).await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert!(again.has("idempotency-replayed: true") && again.has("location: /v1/tasks/a"));
    assert_eq!(server.engine.stats().taken_in, 1);

    // Another path, another body, another method.
    let other = server.ask("PUT", "/v1/tasks/b", &with("k1"), LATER).await;
    assert_eq!(
        (other.status, other.problem().as_str()),
        (422, "idempotency-key-reused")
    );
    let body = LATER.replace("1h", "2h");
    let other = server.ask("PUT", "/v1/tasks/a", &with("k1"), body).await;
    assert_eq!(other.problem(), "idempotency-key-reused");
    let other = server
        .ask("DELETE", "/v1/tasks/a", "idempotency-key: k1\r\n", "")
        .await;
    assert_eq!(other.problem(), "idempotency-key-reused");

    // A cancel that found nothing is repeated too, although there is something by now.
    let key = "idempotency-key: k2\r\n";
    assert_eq!(
        server.ask("DELETE", "/v1/tasks/c", key, "").await.status,
        404
    );
    server.json("PUT", "/v1/tasks/c", LATER).await;
    let again = server.ask("DELETE", "/v1/tasks/c", key, "").await;
    assert!(again.status == 404 && again.has("idempotency-replayed: true"));

    // Of many at once, one is carried out.
    let taken = server.engine.stats().taken_in;
    let headers = with("k3");
    let all = (0..16).map(|_| server.ask("PUT", "/v1/tasks/d", &headers, LATER));
    let answers = futures_util::future::join_all(all).await;
    assert!(answers.iter().all(|it| it.status == 201));
    assert_eq!(server.engine.stats().taken_in, taken + 1);
    server.stop().await;
}

#[tokio::test]
async fn events_come_as_they_happen_and_end_at_the_stop() {
    let server = Running::start(Settings::new()).await;
    let mut stream = server.connect().await;
    let ask = b"GET /v1/events?prefix=mine HTTP/1.1\r\nhost: x\r\n\r\n";
    stream.write_all(ask).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut next = async || {
        let line = tokio::time::timeout(HANG, lines.next_line()).await;
        line.expect("no event").ok().flatten()
    };
    while next().await.unwrap() != ": watching" {}

    server.json("PUT", "/v1/tasks/other", LATER).await;
    server.json("PUT", "/v1/tasks/mine", LATER).await;
    server
        .json("PATCH", "/v1/tasks/mine", r#"{"delay":"0s"}"#)
        .await;
    let mut told = Vec::new();
    while told.len() < 8 {
        let line = next().await.unwrap();
        if line.starts_with("event: ") || line.starts_with("data: ") {
            told.push(line);
        }
    }
    assert_eq!(told[0], "event: created");
    assert_eq!(told[1], r#"data: {"key":"mine"}"#);
    assert_eq!(told[2], "event: moved");
    assert!(
        told[3].starts_with(r#"data: {"key":"mine","next":"2"#),
        "{}",
        told[3]
    );
    assert_eq!(
        told[4..6],
        ["event: firing", r#"data: {"key":"mine","attempt":1}"#]
    );
    assert_eq!(told[6], "event: delivered");
    // It would hold the server until its deadline.
    server.stop().await;
    while next().await.is_some() {}
}

#[tokio::test]
async fn dead_letters_are_listed_taken_up_and_thrown_away() {
    let engine = Engine::builder(Broken).build().unwrap();
    let mut watch = engine.watch();
    let server = Running::with(engine, Settings::new()).await;
    let once = r#"{"delay":"0s","target":{"topic":"t"},"payload":7,"retry":{"max_attempts":1}}"#;
    for key in ["a", "b", "c"] {
        server.json("PUT", &format!("/v1/tasks/{key}"), once).await;
    }
    let mut dead = async |wanted: u32| {
        let mut seen = 0;
        while seen < wanted {
            let event = tokio::time::timeout(HANG, watch.next()).await.unwrap();
            let event = event.unwrap().unwrap();
            seen += u32::from(format!("{:?}", event.kind).starts_with("Dead"));
        }
    };
    dead(3).await;
    let page = server.ask("GET", "/v1/dead?limit=2", "", "").await.value();
    let letters = page["letters"].as_array().unwrap();
    assert_eq!((letters.len(), page["cursor"].as_str()), (2, Some("1")));
    assert_eq!(letters[0]["reason"], "the broker is away");
    assert_eq!(
        (&letters[0]["attempts"], &letters[0]["payload"]),
        (&1.into(), &7.into())
    );
    let rest = server.ask("GET", "/v1/dead?cursor=1", "", "").await.value();
    assert_eq!(rest["letters"].as_array().unwrap().len(), 1);
    assert!(rest.get("cursor").is_none());

    assert_eq!(server.ask("DELETE", "/v1/dead/0", "", "").await.status, 204);
    let gone = server.ask("DELETE", "/v1/dead/0", "", "").await;
    assert_eq!(
        (gone.status, gone.problem().as_str()),
        (404, "no-such-letter")
    );

    // One whose key is taken stays.
    let taken = page["letters"][1]["key"].as_str().unwrap();
    server
        .json("PUT", &format!("/v1/tasks/{taken}"), LATER)
        .await;
    let refused = server.ask("POST", "/v1/dead/1/requeue", "", "").await;
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (409, "key-taken")
    );
    server
        .ask("DELETE", &format!("/v1/tasks/{taken}"), "", "")
        .await;
    let queued = server.ask("POST", "/v1/dead/1/requeue", "", "").await;
    assert_eq!(
        (queued.status, queued.value()["key"].as_str()),
        (200, Some(taken))
    );
    // It is tried again, fails again, and is a letter again.
    dead(1).await;
    let page = server.ask("GET", "/v1/dead", "", "").await.value();
    let numbers: Vec<_> = page["letters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [2, 3]);
    server.stop().await;
}

#[tokio::test]
async fn who_has_no_token_is_not_let_in() {
    let server = Running::start(Settings::new().bearer_token("open sesame")).await;
    for headers in [
        "",
        "authorization: open sesame\r\n",
        "authorization: Basic open sesame\r\n",
        "authorization: Bearer \r\n",
        "authorization: Bearer open sesam\r\n",
        "authorization: Bearer open sesame!\r\n",
        "authorization: Bearer open sesamf\r\n",
        "authorization: Bearer open sesame\r\nauthorization: Bearer x\r\n",
    ] {
        for path in ["/v1/tasks", "/openapi.json", "/nowhere"] {
            let answer = server.ask("GET", path, headers, "").await;
            assert_eq!(
                (answer.status, answer.problem().as_str()),
                (401, "unauthorized")
            );
            assert!(answer.has("www-authenticate: Bearer realm=\"wheelhouse\""));
        }
    }
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let header = format!("authorization: {scheme} open sesame\r\n");
        assert_eq!(
            server.ask("GET", "/v1/tasks", &header, "").await.status,
            200
        );
    }
    assert!(!format!("{:?}", Settings::new().bearer_token("open sesame")).contains("sesame"));
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_has_nothing_more_to_say_is_answered() {
    let server = Running::start(Settings::new()).await;
    let mut stream = server.connect().await;
    let request = format!(
        "PUT /v1/tasks/a HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{LATER}",
        LATER.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(read(&mut stream).await.status, 201);
    server.stop().await;
}

#[tokio::test]
async fn a_full_engine_says_when_to_come_again() {
    let engine = Engine::builder(InProcess::new())
        .max_tasks(1)
        .build()
        .unwrap();
    let server = Running::with(engine, Settings::new()).await;
    let key = "idempotency-key: k\r\ncontent-type: application/json\r\n";
    assert_eq!(server.json("PUT", "/v1/tasks/a", LATER).await.status, 201);
    let full = server.ask("PUT", "/v1/tasks/b", key, LATER).await;
    assert_eq!((full.status, full.problem().as_str()), (503, "full"));
    assert!(full.has("retry-after: 1"));
    // That nothing was done is not remembered.
    server.ask("DELETE", "/v1/tasks/a", "", "").await;
    assert_eq!(
        server.ask("PUT", "/v1/tasks/b", key, LATER).await.status,
        201
    );
    server.engine.stop().await;
    let stopping = server.json("PUT", "/v1/tasks/c", LATER).await;
    assert_eq!(
        (stopping.status, stopping.problem().as_str()),
        (503, "stopping")
    );
    tokio::time::timeout(Duration::from_secs(20), server.stop())
        .await
        .unwrap();
}
