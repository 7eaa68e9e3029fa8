//! No body makes the server fail: properties P1 (no 500, whatever comes) and P2 (each answer is one of
//! those that are documented).

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use wheelhouse_server::http::Settings;

use super::Running;

/// Pieces that bodies are made of: some that fit, some that do not.
const PIECES: [&str; 34] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\u0000",
    "\\ud800",
    "\u{e9}",
    "null",
    "true",
    "-1",
    "1e999",
    "0.1",
    "\"delay\"",
    "\"at\"",
    "\"every\"",
    "\"cron\"",
    "\"tz\"",
    "\"target\"",
    "\"topic\"",
    "\"http\"",
    "\"url\"",
    "\"payload\"",
    "\"retry\"",
    "\"max_attempts\"",
    "\"ttl\"",
    "\"key\"",
    "\"1s\"",
    "\"http://[::1]:1/\"",
    "\"2024-01-01T00:00:00Z\"",
    "\"* * * * *\"",
    "\n",
];

fn body() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::collection::vec(prop::sample::select(&PIECES[..]), 0..40);
    let field = (
        prop::sample::select(&PIECES[15..29]),
        prop::sample::select(&PIECES[10..34]),
    );
    let object = prop::collection::vec(field, 0..6).prop_map(|fields| {
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, it)| format!("{name}:{it}"))
            .collect();
        format!("{{\"target\":{{\"topic\":\"t\"}},{}}}", fields.join(",")).into_bytes()
    });
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        pieces.prop_map(|pieces| pieces.concat().into_bytes()),
        object,
    ]
}

#[test]
fn p1_p2_no_body_makes_it_fail() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Running::start(Settings::new()));
    let mut runner = TestRunner::new(Config {
        cases: 300,
        failure_persistence: None,
        ..Config::default()
    });
    let asked = runner.run(&body(), |body| {
        runtime.block_on(async {
            let json = "content-type: application/json\r\n";
            let put = server.ask("PUT", "/v1/tasks/a", json, &body).await;
            prop_assert!(matches!(put.status, 200 | 201 | 400), "{}", put.status);
            let moved = server.ask("PATCH", "/v1/tasks/a", json, &body).await;
            prop_assert!(
                matches!(moved.status, 200 | 400 | 404 | 409),
                "{}",
                moved.status
            );
            let lines = "content-type: application/x-ndjson\r\n";
            let batch = server.ask("POST", "/v1/tasks:batch", lines, &body).await;
            prop_assert_eq!(batch.status, 200);
            let asked = body
                .split(|b| *b == b'\n')
                .filter(|it| !it.trim_ascii().is_empty());
            prop_assert_eq!(batch.body.lines().count(), asked.count());
            for line in batch.body.lines() {
                let answer: serde_json::Value = serde_json::from_str(line).unwrap();
                let status = answer["status"].as_u64();
                prop_assert!(matches!(status, Some(200 | 201 | 400)), "{}", line);
            }
            Ok(())
        })
    });
    asked.unwrap();
    runtime.block_on(server.stop());
}
