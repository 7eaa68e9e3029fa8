//! Redis Streams against a server of their own: the ledger under SIGTERM and under SIGKILL.
//!
//! Needs `redis-server`; without it the tests are ignored, or fail where `WHEELHOUSE_REQUIRE` has
//! `redis` in its list. The consumers are processes: this program, called again.
//!
//! `WHEELHOUSE_LONG=1` holds each ledger to 100 000 messages ten times, instead of 5 000 twice.

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
    use std::fs::{self, File, OpenOptions};
    use std::io::Write as _;
    use std::path::PathBuf;
    use std::process::{Child, Command, ExitCode, Stdio};
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::{Duration, Instant};

    use libtest_mimic::{Arguments, Failed, Trial};
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use redis::streams::{StreamPendingReply, StreamRangeReply};
    use redis::{Client, Connection, cmd};
    use wheelhouse_servicegroup::consume::{Consume, RedisMessage, RedisStream};
    use wheelhouse_servicegroup::{Preset, ServiceGroup};

    /// Where the consumer process reads and writes: `url file`.
    const PART: &str = "WHEELHOUSE_REDIS_PART";
    const STREAM: &str = "orders";
    const GROUP: &str = "shipping";

    pub(super) fn main() -> ExitCode {
        if let Ok(part) = std::env::var(PART) {
            consume(&part);
        }
        let there = Command::new("redis-server")
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|it| it.success());
        let required = std::env::var("WHEELHOUSE_REQUIRE")
            .is_ok_and(|list| list.split(',').any(|it| it == "redis"));
        let trials = [
            ("the_ledger_holds_under_sigterm", under_sigterm as fn()),
            ("the_ledger_holds_under_sigkill", under_sigkill),
            (
                "s10_a_consumer_of_an_empty_stream_exits_at_once",
                empty_stream,
            ),
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

    /// Appends each entry to the file before it is acknowledged.
    fn consume(part: &str) -> ! {
        let (url, file) = part.split_once(' ').expect("two words");
        let file = OpenOptions::new().append(true).open(file).expect("a file");
        let file = Arc::new(Mutex::new(file));
        let handler = move |message: RedisMessage| {
            let file: Arc<Mutex<File>> = file.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let line = format!("{}\n", message.id());
                file.lock().expect("no panic").write_all(line.as_bytes())?;
                assert_eq!(message.field("task"), Some(&b"ship"[..]));
                Ok(())
            }
        };
        let mut group = ServiceGroup::builder()
            .preset(Preset::Systemd)
            .total(Duration::from_secs(10))
            .build()
            .expect("it fits");
        let stream = RedisStream::new(url, STREAM, GROUP)
            .expect("an address")
            .min_idle(Duration::from_millis(500));
        let service = Consume::new(stream, handler).concurrency(16).prefetch(100);
        group.add("orders", service).expect("it can be added");
        std::process::exit(group.run_blocking().exit_code())
    }

    /// A server with a folder of its own, and what the consumers have written.
    struct Redis {
        folder: PathBuf,
        server: Child,
        url: String,
    }

    impl Redis {
        fn start(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("wh-{}-{name}", std::process::id()));
            fs::create_dir_all(&folder).expect("a folder");
            let socket = folder.join("s");
            let server = Command::new("redis-server")
                .args([
                    "--port",
                    "0",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                    "--unixsocket",
                ])
                .arg(&socket)
                .stdout(Stdio::null())
                .current_dir(&folder)
                .spawn()
                .expect("a server");
            let url = format!("redis+unix://{}", socket.display());
            File::create(folder.join("processed")).expect("a file");
            let redis = Redis {
                folder,
                server,
                url,
            };
            redis.within_a_minute("a server that answers", || redis.try_connect().is_some());
            redis
        }

        fn try_connect(&self) -> Option<Connection> {
            Client::open(self.url.as_str()).ok()?.get_connection().ok()
        }

        fn connect(&self) -> Connection {
            self.try_connect().expect("a connection")
        }

        fn publish(&self, count: usize) {
            let mut entries = redis::pipe();
            for _ in 0..count {
                entries.cmd("XADD").arg(&[STREAM, "*", "task", "ship"]);
            }
            let ids: Vec<String> = entries.query(&mut self.connect()).expect("entries");
            assert_eq!(ids.len(), count);
        }

        fn consumer(&self) -> Consuming {
            let file = self.folder.join("processed");
            let child = Command::new(std::env::current_exe().expect("it runs"))
                .env(PART, format!("{} {}", self.url, file.display()))
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("it can be called again");
            Consuming(child)
        }

        fn processed(&self) -> Vec<String> {
            let text = fs::read_to_string(self.folder.join("processed")).expect("text");
            text.lines().map(str::to_owned).collect()
        }

        /// Entries that are not pending and were delivered: the acknowledged ones.
        fn acknowledged(&self) -> BTreeSet<String> {
            let mut connection = self.connect();
            let all: StreamRangeReply = cmd("XRANGE")
                .arg(&[STREAM, "-", "+"])
                .query(&mut connection)
                .expect("entries");
            let delivered = self.delivered(&mut connection);
            let delivered = all.ids.iter().take(delivered).map(|it| it.id.clone());
            let mut acknowledged: BTreeSet<_> = delivered.collect();
            let pending: Vec<(String, String, u64, u64)> = cmd("XPENDING")
                .arg(&[STREAM, GROUP, "-", "+", "1000000"])
                .query(&mut connection)
                .expect("entries");
            for (id, ..) in pending {
                assert!(acknowledged.remove(&id), "pending is delivered");
            }
            acknowledged
        }

        fn delivered(&self, connection: &mut Connection) -> usize {
            let info: redis::streams::StreamInfoGroupsReply = cmd("XINFO")
                .arg(&["GROUPS", STREAM])
                .query(connection)
                .expect("groups");
            info.groups[0].entries_read.unwrap_or(0)
        }

        fn pending(&self) -> usize {
            let reply: StreamPendingReply = cmd("XPENDING")
                .arg(&[STREAM, GROUP])
                .query(&mut self.connect())
                .expect("a count");
            reply.count()
        }

        fn within_a_minute(&self, what: &str, condition: impl Fn() -> bool) {
            let begun = Instant::now();
            while !condition() {
                assert!(begun.elapsed() < Duration::from_secs(60), "no {what}");
                thread::sleep(Duration::from_millis(10));
            }
        }

        /// Nothing is acknowledged that was not processed before.
        fn check(&self) {
            let processed: BTreeSet<_> = self.processed().into_iter().collect();
            let acknowledged = self.acknowledged();
            let early: Vec<_> = acknowledged.difference(&processed).collect();
            assert!(early.is_empty(), "acknowledged unprocessed: {early:?}");
        }

        /// A second consumer processes what the first has left.
        fn finish(&self, published: usize) {
            let mut second = self.consumer();
            self.within_a_minute("end of the work", || {
                let processed: BTreeSet<_> = self.processed().into_iter().collect();
                processed.len() == published && self.pending() == 0
            });
            second.signal(Signal::SIGTERM);
            assert_eq!(second.0.wait().expect("a child").code(), Some(0));
            self.check();
            assert_eq!(self.acknowledged().len(), published);
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

    struct Consuming(Child);

    impl Consuming {
        fn signal(&self, signal: Signal) {
            let id = i32::try_from(self.0.id()).expect("a process number");
            kill(Pid::from_raw(id), signal).expect("it lives");
        }
    }

    impl Drop for Consuming {
        fn drop(&mut self) {
            // It has ended, or a test has failed.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// How many messages each ledger is held to, and how often.
    fn messages_and_runs() -> (usize, usize) {
        match std::env::var_os("WHEELHOUSE_LONG") {
            Some(_) => (100_000, 10),
            None => (5_000, 2),
        }
    }

    fn under_sigterm() {
        let (messages, runs) = messages_and_runs();
        for run in 0..runs {
            let redis = Redis::start("term");
            redis.publish(messages);
            let mut first = redis.consumer();
            let enough = messages * (1 + run % 7) / 10;
            redis.within_a_minute("work", || redis.processed().len() > enough);
            first.signal(Signal::SIGTERM);
            assert_eq!(first.0.wait().expect("a child").code(), Some(0));
            redis.check();
            let processed = redis.processed();
            assert!(processed.len() < messages, "it was stopped midway");
            // All that was processed was acknowledged, once; the rest was given back.
            let once: BTreeSet<_> = processed.iter().cloned().collect();
            assert_eq!(once.len(), processed.len(), "processed twice");
            assert_eq!(redis.acknowledged(), once);
            redis.finish(messages);
        }
    }

    /// Three consumers are killed, one after the other; a fourth finishes.
    fn under_sigkill() {
        let (messages, runs) = messages_and_runs();
        for run in 0..runs {
            let redis = Redis::start("kill");
            redis.publish(messages);
            for tenths in [1, 3, 5] {
                let mut one = redis.consumer();
                let enough = messages * (tenths + run % 3) / 10;
                redis.within_a_minute("work", || redis.processed().len() > enough);
                one.signal(Signal::SIGKILL);
                one.0.wait().expect("a child");
                redis.check();
                assert!(redis.pending() > 0, "it had some in hand");
            }
            redis.finish(messages);
        }
    }

    fn empty_stream() {
        let redis = Redis::start("empty");
        let mut first = redis.consumer();
        redis.within_a_minute("group", || {
            let exists: i64 = cmd("EXISTS")
                .arg(STREAM)
                .query(&mut redis.connect())
                .expect("a number");
            exists == 1
        });
        let begun = Instant::now();
        first.signal(Signal::SIGTERM);
        assert_eq!(first.0.wait().expect("a child").code(), Some(0));
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
    }
}
