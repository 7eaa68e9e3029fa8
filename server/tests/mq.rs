//! Topics on Redis Streams, against a server of their own.
//!
//! Needs `redis-server`; without it the tests are ignored, or fail where `WHEELHOUSE_REQUIRE` has
//! `redis` in its list.

use std::process::ExitCode;

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(unix)]
fn main() -> ExitCode {
    unix::main()
}

#[cfg(unix)]
mod unix {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, ExitCode, Stdio};
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    use libtest_mimic::{Arguments, Failed, Trial};
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use redis::streams::StreamRangeReply;
    use redis::{Client, Connection, cmd};
    use wheelhouse_server::engine::{Engine, EventKind, Watch};
    use wheelhouse_server::mq::RedisTopics;
    use wheelhouse_server::task::{Key, Task};

    pub(super) fn main() -> ExitCode {
        let there = Command::new("redis-server")
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|it| it.success());
        let required = std::env::var("WHEELHOUSE_REQUIRE")
            .is_ok_and(|list| list.split(',').any(|it| it == "redis"));
        let trials = [
            ("an_entry_has_the_fields_of_its_message", fields as fn()),
            ("each_of_many_messages_at_once_arrives_once", many),
            ("a_server_that_comes_back_is_found_again", comes_back),
            ("a_server_that_hangs_is_an_error_in_time", hangs),
            ("a_key_of_another_type_fails_alone", another_type),
            ("a_stream_is_kept_at_about_its_length", length),
            ("s2_a_task_is_tried_until_redis_is_back", tried_again),
            ("s2_what_was_put_is_delivered_or_pending", ledger),
        ]
        .map(|(name, test)| {
            let trial = Trial::test(name, move || {
                if !there {
                    return Err(Failed::from("redis-server is not installed"));
                }
                test();
                Ok(())
            });
            match there || required {
                true => trial,
                false => trial
                    .with_kind("needs redis-server")
                    .with_ignored_flag(true),
            }
        });
        libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
    }

    fn fields() {
        let redis = Redis::start("fields");
        let topics = redis.topics();
        let payload = "{\"to\":\"Zoë\", \"n\":1.50, \"zero\":\"\\u0000\"}";
        run(async {
            topics
                .append("mails", "order/7 ü", 3, payload)
                .await
                .expect("taken");
            topics
                .append("bills", "b", u32::MAX, "null")
                .await
                .expect("taken");
        });
        let expected = [("attempt", "3"), ("key", "order/7 ü"), ("payload", payload)];
        assert_eq!(redis.entries("mails"), [own(expected)]);
        let expected = [("attempt", "4294967295"), ("key", "b"), ("payload", "null")];
        assert_eq!(redis.entries("bills"), [own(expected)]);
    }

    /// Published = in the stream: nothing is lost, nothing doubled, on one connection.
    fn many() {
        let redis = Redis::start("many");
        let topics = Arc::new(redis.topics());
        run(async {
            let mut publishing = tokio::task::JoinSet::new();
            for number in 0..2_000 {
                let topics = topics.clone();
                publishing.spawn(async move {
                    let key = number.to_string();
                    topics.append("ticks", &key, 1, "0").await
                });
            }
            for published in publishing.join_all().await {
                published.expect("taken");
            }
            // This runtime's connection, and the one that asks.
            assert_eq!(redis.clients(), 2);
        });
        let entries = redis.entries("ticks");
        let keys: BTreeSet<_> = entries
            .iter()
            .flatten()
            .filter(|it| it.0 == "key")
            .collect();
        assert_eq!((entries.len(), keys.len()), (2_000, 2_000));
    }

    fn comes_back() {
        let mut redis = Redis::start("back");
        let topics = redis.topics();
        run(async {
            topics.append("t", "before", 1, "1").await.expect("taken");
            redis.kill();
            let refused = topics.append("t", "lost", 1, "1").await.expect_err("gone");
            assert!(
                refused.to_string().starts_with("redis did not take"),
                "{refused}"
            );
            assert!(topics.append("t", "lost", 2, "1").await.is_err());
            redis.run();
            topics.append("t", "after", 1, "1").await.expect("taken");
        });
        // What was there before was in memory alone.
        let expected = [("attempt", "1"), ("key", "after"), ("payload", "1")];
        assert_eq!(redis.entries("t"), [own(expected)]);
    }

    fn hangs() {
        let redis = Redis::start("hangs");
        let topics = redis.topics();
        run(async {
            topics.append("t", "before", 1, "1").await.expect("taken");
            redis.signal(Signal::SIGSTOP);
            let asked = topics.append("t", "late", 1, "1");
            let answer = tokio::time::timeout(Duration::from_secs(30), asked).await;
            redis.signal(Signal::SIGCONT);
            assert!(answer.expect("an answer in time").is_err());
            topics.append("t", "after", 1, "1").await.expect("taken");
        });
    }

    fn another_type() {
        let redis = Redis::start("type");
        let topics = redis.topics();
        let set: redis::RedisResult<()> = cmd("SET").arg(&["t", "x"]).query(&mut redis.connect());
        set.expect("set");
        run(async {
            let refused = topics
                .append("t", "k", 1, "1")
                .await
                .expect_err("no stream");
            assert!(refused.to_string().contains("WRONGTYPE"), "{refused}");
            topics.append("other", "k", 1, "1").await.expect("taken");
        });
    }

    fn length() {
        let redis = Redis::start("length");
        let topics = redis.topics().max_len(100);
        run(async {
            for number in 0..1_000 {
                let key = number.to_string();
                topics.append("t", &key, 1, "1").await.expect("taken");
            }
        });
        // Redis drops whole nodes, of 100 entries by default.
        let left = redis.entries("t").len();
        assert!((100..=200).contains(&left), "{left} entries");
    }

    fn tried_again() {
        let mut redis = Redis::start("again");
        run(async {
            let engine = Engine::builder(redis.topics()).build().expect("it fits");
            let mut watch = engine.watch();
            redis.kill();
            let task = r#"{"delay":"0s","target":{"topic":"t"},"payload":[1],
                "retry":{"max_attempts":100,"base":"50ms","max":"50ms"}}"#;
            put(&engine, "k", task);
            until(&mut watch, |kind| {
                matches!(kind, EventKind::Retrying(2, ..))
            })
            .await;
            redis.run();
            let delivered = until(&mut watch, |kind| matches!(kind, EventKind::Delivered(_))).await;
            let EventKind::Delivered(attempt) = delivered else {
                unreachable!("it was waited for");
            };
            assert!(attempt > 2, "{attempt}");
            let attempt = attempt.to_string();
            let expected = [("attempt", &*attempt), ("key", "k"), ("payload", "[1]")];
            assert_eq!(redis.entries("t"), [own(expected)]);
            assert_eq!(engine.stop().await.pending, 0);
        });
    }

    fn ledger() {
        let redis = Redis::start("ledger");
        run(async {
            let engine = Engine::builder(redis.topics()).build().expect("it fits");
            for number in 0..1_000 {
                // Some are due before the stop, some while it runs, some never.
                let delay = [0, 20, 40, 3_600_000][number % 4];
                let task = format!(r#"{{"delay":"{delay}ms","target":{{"topic":"t"}}}}"#);
                put(&engine, &number.to_string(), &task);
            }
            let mut watch = engine.watch();
            until(&mut watch, |kind| matches!(kind, EventKind::Delivered(_))).await;
            let left = engine.stop().await;
            let entries = redis.entries("t");
            let keys: BTreeSet<_> = entries
                .iter()
                .flatten()
                .filter(|it| it.0 == "key")
                .collect();
            assert_eq!(keys.len(), entries.len(), "delivered twice");
            assert!(!keys.is_empty() && left.pending >= 250, "{left:?}");
            assert_eq!(keys.len() + left.pending, 1_000);
        });
    }

    fn put(engine: &Engine, key: &str, task: &str) {
        let task = Task::from_json(task.as_bytes()).expect("a task");
        engine
            .put(Key::new(key).expect("a key"), task)
            .expect("taken in");
    }

    /// Reads events until one is like this.
    async fn until(watch: &mut Watch, like: impl Fn(&EventKind) -> bool) -> EventKind {
        let reading = async {
            loop {
                // Events that were missed are not those of a test with few of them.
                if let Ok(event) = watch.next().await {
                    let kind = event.expect("the engine is there").kind;
                    if like(&kind) {
                        return kind;
                    }
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), reading)
            .await
            .expect("an event in time")
    }

    /// A server with a folder of its own.
    struct Redis {
        folder: PathBuf,
        server: Child,
    }

    impl Redis {
        fn start(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("wh-mq-{}-{name}", std::process::id()));
            fs::create_dir_all(&folder).expect("a folder");
            let server = spawn(&folder);
            let redis = Redis { folder, server };
            redis.until_it_answers();
            redis
        }

        fn run(&mut self) {
            self.server = spawn(&self.folder);
            self.until_it_answers();
        }

        fn kill(&mut self) {
            self.server.kill().expect("it lives");
            self.server.wait().expect("a child");
        }

        fn signal(&self, signal: Signal) {
            let id = i32::try_from(self.server.id()).expect("a process number");
            kill(Pid::from_raw(id), signal).expect("it lives");
        }

        fn url(&self) -> String {
            format!("redis+unix://{}", self.folder.join("s").display())
        }

        fn topics(&self) -> RedisTopics {
            RedisTopics::new(&self.url()).expect("an address")
        }

        fn try_connect(&self) -> Option<Connection> {
            Client::open(self.url()).ok()?.get_connection().ok()
        }

        fn connect(&self) -> Connection {
            self.try_connect().expect("a connection")
        }

        fn until_it_answers(&self) {
            let begun = Instant::now();
            while self.try_connect().is_none() {
                assert!(begun.elapsed() < Duration::from_secs(60), "no server");
                thread::sleep(Duration::from_millis(10));
            }
        }

        fn clients(&self) -> usize {
            let list: String = cmd("CLIENT")
                .arg("LIST")
                .query(&mut self.connect())
                .expect("a list");
            list.lines().count()
        }

        /// The fields of each entry of a stream, by name.
        fn entries(&self, stream: &str) -> Vec<Vec<(String, String)>> {
            let all: StreamRangeReply = cmd("XRANGE")
                .arg(&[stream, "-", "+"])
                .query(&mut self.connect())
                .expect("entries");
            let entries = all.ids.into_iter().map(|entry| {
                let mut fields: Vec<_> = entry
                    .map
                    .into_iter()
                    .map(|(name, value)| (name, redis::from_redis_value(value).expect("text")))
                    .collect();
                fields.sort();
                fields
            });
            entries.collect()
        }
    }

    impl Drop for Redis {
        fn drop(&mut self) {
            // The test is over; what cannot be tidied up is left.
            let _ = self.server.kill();
            let _ = self.server.wait();
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    fn spawn(folder: &Path) -> Child {
        Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(folder.join("s"))
            .stdout(Stdio::null())
            .current_dir(folder)
            .spawn()
            .expect("a server")
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(test);
    }

    fn own<const N: usize>(fields: [(&str, &str); N]) -> Vec<(String, String)> {
        let fields = fields.into_iter();
        fields
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }
}
