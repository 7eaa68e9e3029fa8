//! Batches: one answer for each line, in their order, while they are sent.

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use wheelhouse_server::http::{MAX_BODY, Settings};

use super::{HANG, Running};

const KIND: &str = "content-type: application/x-ndjson\r\n";

fn line(key: &str) -> String {
    format!(r#"{{"key":"{key}","delay":"1h","target":{{"topic":"t"}}}}"#)
}

#[tokio::test]
async fn each_line_has_its_answer() {
    let server = Running::start(Settings::new()).await;
    let long = format!(r#"{{"payload":"{}"}}"#, "x".repeat(MAX_BODY));
    let lines = [
        line("a"),
        String::new(),
        line("a"),
        "nonsense".to_owned(),
        " \t\r".to_owned(),
        line(""),
        long,
        r#"{"delay":"1h","target":{"topic":"t"}}"#.to_owned(),
        format!("{}\r", line("ü/\\\"")),
    ];
    let answer = server
        .ask("POST", "/v1/tasks:batch", KIND, lines.join("\n"))
        .await;
    assert!(answer.has("content-type: application/x-ndjson"));
    let answers: Vec<serde_json::Value> = answer
        .body
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    let told: Vec<_> = answers
        .iter()
        .map(|it| {
            let kind = it["type"]
                .as_str()
                .unwrap_or(":")
                .rsplit(':')
                .next()
                .unwrap();
            (
                it["line"].as_u64().unwrap(),
                it["status"].as_u64().unwrap(),
                kind.to_owned(),
            )
        })
        .collect();
    let expected = [
        (1, 201, ""),
        (3, 200, ""),
        (4, 400, "malformed"),
        (6, 400, "not-allowed"),
        (7, 413, "too-large"),
        (8, 400, "malformed"),
        (9, 201, ""),
    ];
    let expected = expected.map(|(line, status, kind)| (line, status, kind.to_owned()));
    assert_eq!(told, expected);
    assert_eq!(
        (answers[0]["key"].as_str(), answers[6]["key"].as_str()),
        (Some("a"), Some("ü/\""))
    );
    assert_eq!(server.engine.stats().pending, 2);
    server.stop().await;
}

#[tokio::test]
async fn answers_come_while_lines_are_sent() {
    let server = Running::start(Settings::new()).await;
    let stream = server.connect().await;
    let (read, mut write) = stream.into_split();
    let mut answers = BufReader::new(read).lines();
    let head = format!(
        "POST /v1/tasks:batch HTTP/1.1\r\nhost: x\r\n{KIND}transfer-encoding: chunked\r\n\r\n"
    );
    write.write_all(head.as_bytes()).await.unwrap();
    for n in 0..3 {
        // In two pieces, so that a line is put together.
        let line = format!("{}\n", line(&format!("k{n}")));
        for part in [&line[..10], &line[10..]] {
            let chunk = format!("{:x}\r\n{part}\r\n", part.len());
            write.write_all(chunk.as_bytes()).await.unwrap();
            write.flush().await.unwrap();
        }
        let wanted = format!(r#"{{"line":{},"key":"k{n}","status":201}}"#, n + 1);
        loop {
            let next = tokio::time::timeout(HANG, answers.next_line()).await;
            if next.expect("no answer").unwrap().unwrap() == wanted {
                break;
            }
        }
    }
    // A stop ends it with a word, although the client would go on.
    let stopped = tokio::spawn(server.stop());
    loop {
        let next = tokio::time::timeout(HANG, answers.next_line()).await;
        let line = next.expect("no end").unwrap().expect("no word");
        if line.contains("urn:wheelhouse:problem:stopping") {
            assert!(line.contains(r#""line":4"#), "{line}");
            break;
        }
    }
    drop(write);
    stopped.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_lines_on_one_connection() {
    const LINES: usize = 10_000;
    let server = Running::start(Settings::new()).await;
    let stream = server.connect().await;
    let (mut read, mut write) = stream.into_split();
    let sent = tokio::spawn(async move {
        let body: String = (0..LINES).map(|n| line(&format!("k{n}")) + "\n").collect();
        let head = format!(
            "POST /v1/tasks:batch HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{KIND}content-length: {}\r\n\r\n",
            body.len()
        );
        write.write_all(head.as_bytes()).await.unwrap();
        write.write_all(body.as_bytes()).await.unwrap();
        write
    });
    let mut answer = Vec::new();
    let reading = tokio::time::timeout(HANG, read.read_to_end(&mut answer)).await;
    reading.expect("no end").unwrap();
    drop(sent.await.unwrap());
    let text = String::from_utf8(answer).unwrap();
    assert_eq!(text.matches("\"status\":201").count(), LINES);
    assert_eq!(server.engine.stats().pending, LINES);
    server.stop().await;
}
