//! Targets over HTTP: what they get, what their answers mean, and who is kept from whom.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use wheelhouse_resilience::State as Breaker;
use wheelhouse_server::delivery::{HttpTargets, Settings};
use wheelhouse_server::engine::{Builder, Engine, EventKind, InProcess, Put, Watch};
use wheelhouse_server::http;
use wheelhouse_server::task::{Key, Task};
use wheelhouse_wheel::ManualClock;

use super::{HANG, Running};

/// A request as a target gets it.
struct Got {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: String,
    at: SystemTime,
}

type Answering = Arc<dyn Fn(&str) -> Option<Response> + Send + Sync>;

/// A target that answers by the path, or never.
struct Target {
    address: SocketAddr,
    got: mpsc::UnboundedReceiver<Got>,
}

impl Target {
    async fn start(answer: impl Fn(&str) -> Option<Response> + Send + Sync + 'static) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, got) = mpsc::unbounded_channel();
        let answer: Answering = Arc::new(answer);
        let router = Router::new().fallback(take).with_state((tell, answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Target { address, got }
    }

    async fn next(&mut self) -> Got {
        let next = tokio::time::timeout(HANG, self.got.recv()).await;
        next.expect("no request").unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

async fn take(
    State((tell, answer)): State<(mpsc::UnboundedSender<Got>, Answering)>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> Response {
    let path = uri.to_string();
    let answer = answer(&path);
    let at = SystemTime::now();
    let got = Got {
        method,
        path,
        headers,
        body,
        at,
    };
    // A test that has seen enough listens no more.
    let _ = tell.send(got);
    match answer {
        Some(answer) => answer,
        None => std::future::pending().await,
    }
}

fn builder(settings: Settings) -> Builder {
    Engine::builder(InProcess::new()).webhooks(HttpTargets::new(settings).unwrap())
}

fn put(engine: &Engine, key: &str, json: &str) {
    let task = Task::from_json(json.as_bytes()).unwrap();
    assert_eq!(
        engine.put(Key::new(key).unwrap(), task).unwrap(),
        Put::Created
    );
}

fn to(url: &str, rest: &str) -> String {
    format!(r#"{{"delay":"0s","target":{{"http":{{"url":"{url}"}}}}{rest}}}"#)
}

/// The next event of a task that `wanted` gives something for.
async fn event<T>(watch: &mut Watch, wanted: impl Fn(&str, &EventKind) -> Option<T>) -> T {
    loop {
        let event = tokio::time::timeout(HANG, watch.next())
            .await
            .expect("no event");
        let event = event.unwrap().expect("the engine is gone");
        if let Some(found) = wanted(&event.key, &event.kind) {
            return found;
        }
    }
}

async fn dead(watch: &mut Watch) -> String {
    event(watch, |_, kind| match kind {
        EventKind::Dead(reason) => Some(reason.to_string()),
        _ => None,
    })
    .await
}

/// Waits for something that has to come.
async fn until(what: &str, there: impl Fn() -> bool) {
    let begun = Instant::now();
    while !there() {
        assert!(begun.elapsed() < HANG, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_target_gets_the_payload_at_its_time_with_key_and_attempt() {
    let mut target = Target::start(|_| Some(StatusCode::OK.into_response())).await;
    let engine = builder(Settings::new()).build().unwrap();
    let due = SystemTime::now() + Duration::from_millis(50);
    let json = format!(
        r#"{{"delay":"50ms","payload":{{"n": 1.50}},"target":{{"http":{{"url":"{}",
            "method":"PUT","headers":{{"X-Token":"s3cret","content-type":"text/plain"}}}}}}}}"#,
        target.url("/hook?a=b")
    );
    put(&engine, "order/7 ü", &json);
    let got = target.next().await;
    assert_eq!((got.method, &*got.path), (Method::PUT, "/hook?a=b"));
    assert_eq!(got.body, r#"{"n": 1.50}"#);
    assert!(got.at >= due, "it came early");
    let header = |name: &str| got.headers.get(name).map(|it| it.to_str().unwrap());
    assert_eq!(header("wheelhouse-key"), Some("order%2F7%20%C3%BC"));
    assert_eq!(header("wheelhouse-attempt"), Some("1"));
    assert_eq!(header("x-token"), Some("s3cret"));
    assert_eq!(header("content-type"), Some("text/plain"));
    assert_eq!(header("host"), Some(&*target.address.to_string()));

    let get = to(&target.url("/"), "").replace(r#""}}"#, r#"","method":"GET"}}"#);
    put(&engine, "get", &get);
    let got = target.next().await;
    assert_eq!((got.method, &*got.body), (Method::GET, ""));
    assert!(got.headers.get("content-type").is_none());
    assert_eq!(engine.stop().await.pending, 0);
    assert_eq!(engine.stats().delivered, 2);
}

#[tokio::test]
async fn what_failed_is_tried_again_and_a_wish_to_be_left_alone_is_granted() {
    let mut target = Target::start(|path| {
        let busy = |after: &str| {
            let headers = [("retry-after", after.to_owned())];
            (StatusCode::SERVICE_UNAVAILABLE, headers).into_response()
        };
        Some(match path {
            "/wish" => busy("30"),
            "/long" => busy("86400"),
            "/429" => StatusCode::TOO_MANY_REQUESTS.into_response(),
            _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        })
    })
    .await;
    let clock = ManualClock::new();
    let engine = builder(Settings::new())
        .clock(clock.clone())
        .build()
        .unwrap();
    let mut watch = engine.watch();
    let rows = [
        // By the policy: 1 s, of which chance takes up to a half.
        ("/500", 500, 1_000),
        ("/429", 500, 1_000),
        // By the target, which is not waited for longer than the policy says.
        ("/wish", 30_000, 30_000),
        ("/long", 60_000, 60_000),
    ];
    for (path, least, most) in rows {
        put(&engine, path, &to(&target.url(path), ""));
        clock.advance(Duration::from_millis(2));
        assert_eq!(target.next().await.path, path);
        let next = event(&mut watch, |_, kind| match kind {
            EventKind::Retrying(1, next, reason) => {
                assert!(reason.starts_with("the target answered "), "{reason}");
                Some(*next)
            }
            _ => None,
        });
        let next = SystemTime::from(next.await);
        let now = wheelhouse_wheel::Clock::system_now(&clock);
        let wait = next.duration_since(now).unwrap();
        let (least, most) = (Duration::from_millis(least), Duration::from_millis(most));
        // The times of events are whole milliseconds.
        let ms = Duration::from_millis(1);
        assert!(wait + ms >= least && wait <= most + ms, "{path}: {wait:?}");
        // A retry carries the next number.
        if path == "/500" {
            clock.run_for(Duration::from_secs(1));
            let again = target.next().await;
            assert_eq!(again.headers["wheelhouse-attempt"], "2");
        }
        engine.cancel(&Key::new(path).unwrap()).unwrap();
    }
    engine.stop().await;
}

#[tokio::test]
async fn a_refusal_is_for_good_and_redirects_are_not_followed() {
    let mut target = Target::start(|path| {
        let code = path[1..].parse().unwrap();
        let status = StatusCode::from_u16(code).unwrap();
        Some((status, [("location", "/200")]).into_response())
    })
    .await;
    let engine = builder(Settings::new()).build().unwrap();
    let mut watch = engine.watch();
    for code in [301, 302, 307, 400, 401, 404, 410, 422] {
        let path = format!("/{code}");
        put(&engine, &path, &to(&target.url(&path), ""));
        assert_eq!(target.next().await.path, path);
        let reason = dead(&mut watch).await;
        assert!(
            reason.starts_with(&format!("the target answered {code}")),
            "{reason}"
        );
    }
    // None was asked twice, and none followed.
    assert!(target.got.try_recv().is_err());
    assert_eq!((engine.stats().failed, engine.stats().dead), (8, 8));
    engine.stop().await;
}

#[tokio::test]
async fn a_breaker_opens_on_a_target_that_is_down_and_lets_it_back() {
    const TASKS: usize = 200;
    let up = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    let mut target = Target::start(move |_| {
        // Relaxed: it may be up a moment later.
        Some(match is_up.load(Ordering::Relaxed) {
            true => StatusCode::NO_CONTENT.into_response(),
            false => StatusCode::BAD_GATEWAY.into_response(),
        })
    })
    .await;
    let targets = HttpTargets::new(Settings::new().calls_per_origin(8)).unwrap();
    let engine = Engine::builder(InProcess::new())
        .webhooks(targets.clone())
        .build()
        .unwrap();
    // Few attempts: without the breaker, all of them would be used up while it is down.
    let rest = r#","retry":{"max_attempts":8,"base":"1ms","max":"2ms"}"#;
    for n in 0..TASKS {
        put(&engine, &format!("k{n}"), &to(&target.url("/"), rest));
    }
    let stats = || targets.breakers().first().map(|(_, stats)| *stats);
    until("it opens", || stats().is_some_and(|it| it.transitions > 0)).await;
    // It is let back after a second, and nothing has died: what was put off used up no attempt.
    up.store(true, Ordering::Relaxed);
    until("all is delivered", || {
        engine.stats().delivered == TASKS as u64
    })
    .await;
    let breaker = stats().unwrap();
    let stats = engine.stats();
    assert_eq!((stats.dead, stats.pending), (0, 0));
    assert!(stats.held > 0 && stats.failed < 200, "{stats:?}");
    assert_ne!(breaker.state, Breaker::Open);
    // What it let through while it was down: some failures until it opened, and its probes.
    target.got.close();
    let mut reached = 0;
    while target.got.try_recv().is_ok() {
        reached += 1;
    }
    assert_eq!(reached, stats.failed + stats.delivered);
    engine.stop().await;
}

#[tokio::test]
async fn a_target_that_hangs_slows_no_other() {
    let hanging = Target::start(|_| None).await;
    let mut other = Target::start(|_| Some(StatusCode::OK.into_response())).await;
    // Eight places in all, of which the one that hangs gets four.
    let engine = builder(Settings::new().calls_per_origin(4))
        .max_attempts_under_way(8)
        .attempt_timeout(Duration::from_secs(60))
        .build()
        .unwrap();
    for n in 0..100 {
        put(&engine, &format!("h{n}"), &to(&hanging.url("/"), ""));
    }
    let begun = Instant::now();
    for n in 0..100 {
        put(&engine, &format!("o{n}"), &to(&other.url("/"), ""));
        other.next().await;
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    let page = engine.list("h", None, 100).unwrap();
    let firing = page
        .tasks
        .iter()
        .filter(|(_, status)| status.firing)
        .count();
    let attempts: u32 = page.tasks.iter().map(|(_, status)| status.attempts).sum();
    assert_eq!((firing, attempts), (4, 4));
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_has_failed_and_counts_for_the_breaker() {
    let target = Target::start(|_| None).await;
    let targets = HttpTargets::new(Settings::new()).unwrap();
    let engine = Engine::builder(InProcess::new())
        .webhooks(targets.clone())
        .attempt_timeout(Duration::from_millis(50))
        .build()
        .unwrap();
    let mut watch = engine.watch();
    put(
        &engine,
        "a",
        &to(&target.url("/"), r#","retry":{"max_attempts":1}"#),
    );
    assert_eq!(dead(&mut watch).await, "timed out after 50ms");
    assert_eq!(targets.breakers()[0].1.failures, 1);
    engine.stop().await;
}

#[tokio::test]
async fn private_addresses_are_refused_however_they_are_written() {
    let mut target = Target::start(|_| Some(StatusCode::OK.into_response())).await;
    let port = target.address.port();
    let engine = builder(Settings::new().refuse_private(true))
        .build()
        .unwrap();
    let mut watch = engine.watch();
    let hosts = [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "0.0.0.0",
        "169.254.169.254",
    ];
    for host in hosts {
        put(&engine, host, &to(&format!("http://{host}:{port}/"), ""));
        let reason = dead(&mut watch).await;
        assert_eq!(
            reason, "its address is not public, and such targets are refused",
            "{host}"
        );
    }
    // As the numbers of an address, some systems read them, others do not: either way nothing is let in.
    for host in ["2130706433", "0x7f000001", "127.1", "0177.0.0.1"] {
        let once = r#","retry":{"max_attempts":1}"#;
        put(&engine, host, &to(&format!("http://{host}:{port}/"), once));
        dead(&mut watch).await;
    }
    assert!(target.got.try_recv().is_err());
    engine.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_a_failure_that_says_so_and_no_more() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let free = listener.local_addr().unwrap();
    drop(listener);
    let engine = builder(Settings::new()).build().unwrap();
    let mut watch = engine.watch();
    let once = r#","retry":{"max_attempts":1}"#;
    put(
        &engine,
        "refused",
        &to(&format!("http://{free}/s3cret?t=s3cret"), once),
    );
    let reason = dead(&mut watch).await;
    assert!(
        reason.starts_with("the target was not reached: "),
        "{reason}"
    );
    assert!(!reason.contains("s3cret"), "{reason}");
    // TLS with a server that has none.
    let plain = Target::start(|_| Some(StatusCode::OK.into_response())).await;
    put(
        &engine,
        "tls",
        &to(&plain.url("/").replace("http:", "https:"), once),
    );
    assert!(
        dead(&mut watch)
            .await
            .starts_with("the target was not reached: ")
    );
    put(&engine, "name", &to("http://no-such-host.invalid/", once));
    assert!(
        dead(&mut watch)
            .await
            .starts_with("the target was not reached: ")
    );
    engine.stop().await;
}

#[tokio::test]
async fn a_large_answer_is_not_read_to_its_end() {
    let target = Target::start(|_| {
        let chunk = || Bytes::from(vec![b'x'; 65_536]);
        let chunks = futures_util::stream::repeat_with(move || Ok::<_, std::io::Error>(chunk()));
        Some(axum::body::Body::from_stream(chunks).into_response())
    })
    .await;
    let engine = builder(Settings::new()).build().unwrap();
    let mut watch = engine.watch();
    put(&engine, "a", &to(&target.url("/"), ""));
    event(&mut watch, |_, kind| {
        matches!(kind, EventKind::Delivered(1)).then_some(())
    })
    .await;
    engine.stop().await;
}

#[tokio::test]
async fn headers_of_a_target_are_for_the_target_alone() {
    let target = Target::start(|_| Some(StatusCode::BAD_REQUEST.into_response())).await;
    let engine = builder(Settings::new()).build().unwrap();
    let mut watch = engine.watch();
    let server = Running::with(engine, http::Settings::new()).await;
    let json = to(&target.url("/"), "")
        .replace(
            r#""}}"#,
            r#"","headers":{"authorization":"Bearer s3cret"}}}"#,
        )
        .replace("0s", "1h");
    assert_eq!(server.json("PUT", "/v1/tasks/a", &json).await.status, 201);
    let found = server.ask("GET", "/v1/tasks/a", "", "").await;
    let listed = server.ask("GET", "/v1/tasks", "", "").await;
    server
        .json("PATCH", "/v1/tasks/a", r#"{"delay":"0s"}"#)
        .await;
    dead(&mut watch).await;
    let letters = server.ask("GET", "/v1/dead", "", "").await;
    for shown in [found, listed, letters] {
        assert!(
            shown.body.contains(r#""authorization":"***""#),
            "{}",
            shown.body
        );
        assert!(!shown.body.contains("s3cret"), "{}", shown.body);
    }
    server.stop().await;
}

/// S3 over HTTP: what a cancel says it kept from being delivered was not, and the rest was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_cancels_and_moves_that_race_with_deliveries_say_who_won() {
    const TASKS: usize = 200;
    let mut target = Target::start(|_| Some(StatusCode::OK.into_response())).await;
    let engine = builder(Settings::new()).build().unwrap();
    let server = Running::with(engine, http::Settings::new()).await;
    let json = to(&target.url("/"), "").replace("0s", "20ms");
    let (mut cancelled, mut late, mut moved) = (BTreeSet::new(), BTreeSet::new(), 0);
    for n in 0..TASKS {
        let path = format!("/v1/tasks/k{n}");
        server.json("PUT", &path, &json).await;
        if n < 20 {
            continue;
        }
        // One that is near its time.
        let near = format!("/v1/tasks/k{}", n - fastrand::usize(5..20));
        if n % 3 == 0 {
            let answer = server.json("PATCH", &near, r#"{"delay":"1ms"}"#).await;
            assert!(matches!(answer.status, 200 | 404 | 409), "{}", answer.body);
            moved += u32::from(answer.status == 200);
            continue;
        }
        let answer = server.ask("DELETE", &near, "", "").await;
        let key = near.trim_start_matches("/v1/tasks/").to_owned();
        match (answer.status, answer.value()["under_way"].as_bool()) {
            (200, Some(false)) => drop(cancelled.insert(key)),
            (200, Some(true)) => drop(late.insert(key)),
            (404, None) => {}
            other => panic!("{other:?}"),
        }
    }
    let mut delivered = BTreeSet::new();
    until("none is left", || server.engine.stats().pending == 0).await;
    let engine = server.engine.clone();
    server.stop().await;
    while let Ok(got) = target.got.try_recv() {
        delivered.insert(got.headers["wheelhouse-key"].to_str().unwrap().to_owned());
    }
    assert!(cancelled.is_disjoint(&delivered));
    let known: BTreeSet<_> = cancelled.iter().chain(&late).chain(&delivered).collect();
    assert_eq!(known.len(), TASKS, "{moved} moved");
    assert_eq!(engine.stats().dead, 0);
}
