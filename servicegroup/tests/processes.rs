//! Signals and exits, on real child processes: this program, called again with the name of a part.
//!
//! `WHEELHOUSE_LONG=1` holds the ledger of a queue to 100 000 messages ten times, instead of 5 000 twice.

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    unix::main()
}

#[cfg(not(unix))]
fn main() {}

#[cfg(unix)]
mod unix {
    use std::collections::HashSet;
    use std::ffi::OsStr;
    use std::fs::{File, OpenOptions};
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::os::unix::process::ExitStatusExt as _;
    use std::path::Path;
    use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use libtest_mimic::{Arguments, Trial};
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use wheelhouse_servicegroup::consume::{Consume, Queue};
    use wheelhouse_servicegroup::{
        Blocking, Error, Member, OsSignals, Policy, Preset, Restart, ServiceContext, ServiceGroup,
        Starter, Stopper,
    };

    const PART: &str = "WHEELHOUSE_PART";
    /// Where messages are written to that have been processed.
    const PROCESSED: &str = "WHEELHOUSE_PROCESSED";

    pub(super) fn main() -> ExitCode {
        if let Ok(part) = std::env::var(PART) {
            play(&part);
        }
        let trials = [
            ("s17_after_the_end_signals_act_by_default", s17 as fn()),
            ("s20_each_ending_has_its_exit_code", s20),
            ("s32_the_second_signal_ends_the_process_at_once", s32),
            ("a_blocked_runtime_does_not_hold_the_process", blocked),
            ("a_stuck_thread_does_not_hold_the_process", stuck_thread),
            ("a_full_pipe_does_not_hold_the_process", full_pipe),
            ("the_lines_tell_the_order", lines),
            ("hangup_reloads_if_there_is_something_to_reload", hangup),
            ("a_storm_of_hangups_reloads_and_ends", storm),
            ("a_signal_during_the_start_ends_it", during_start),
            ("a_signal_in_the_pause_before_a_restart_ends_it", in_a_pause),
            ("a_signal_to_a_frozen_runtime_is_heard", frozen),
            ("other_signals_may_stop", other_signals),
            ("the_ledger_of_a_queue_holds_under_sigterm", ledger),
        ]
        .map(|(name, test)| {
            Trial::test(name, move || {
                test();
                Ok(())
            })
        });
        libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
    }

    // --- The parts ----------------------------------------------------------

    async fn obedient(ctx: ServiceContext) -> Result<(), Error> {
        ctx.ready();
        ctx.stopping().await;
        Ok(())
    }

    async fn stubborn(ctx: ServiceContext) -> Result<(), Error> {
        ctx.ready();
        std::future::pending().await
    }

    /// Says on standard output that the group is ready.
    async fn announce(ctx: ServiceContext) -> Result<(), Error> {
        ctx.ready();
        while !ctx.group().is_ready() && !ctx.draining_token().is_cancelled() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        println!("ready");
        ctx.stopping().await;
        Ok(())
    }

    struct Stuck;

    impl Starter for Stuck {
        fn start(&self) -> Result<(), Error> {
            loop {
                std::thread::park();
            }
        }
    }

    impl Stopper for Stuck {
        fn stop(&self) -> Result<(), Error> {
            self.start()
        }
    }

    fn play(part: &str) -> ! {
        let builder = ServiceGroup::builder()
            .preset(Preset::Systemd)
            .total(Duration::from_millis(700));
        let mut group = match part {
            "hangup" | "storm" => builder.on_reload("config", || {
                println!("reloaded");
                std::future::ready(Ok(()))
            }),
            "patient" => builder.total(Duration::from_secs(60)),
            "usr1" => builder.signals(OsSignals::new([Signal::SIGUSR1 as i32])),
            "capped" => builder.total(Duration::from_secs(60)),
            _ => builder,
        }
        .build()
        .expect("it fits");
        let add = |group: &mut ServiceGroup, member: Member| {
            group.add_level(member).expect("it can be added");
        };
        add(&mut group, Member::new("db", obedient));
        match part {
            "stubborn" | "patient" => add(&mut group, Member::new("stuck", stubborn)),
            "capped" => {
                let cap = Duration::from_millis(100);
                add(&mut group, Member::new("stuck", stubborn).cap(cap));
            }
            "failing" => add(
                &mut group,
                Member::new("failing", async |ctx: ServiceContext| {
                    ctx.ready();
                    Err("it broke".into())
                }),
            ),
            "thread" => add(&mut group, Member::new("stuck", Blocking::new(Stuck))),
            "blocked" => add(
                &mut group,
                Member::new("stuck", async |ctx: ServiceContext| {
                    ctx.ready();
                    ctx.draining().await;
                    // All of the runtime's threads, for ever.
                    for _ in 0..64 {
                        tokio::spawn(async {
                            loop {
                                std::thread::park();
                            }
                        });
                    }
                    loop {
                        std::thread::park();
                    }
                }),
            ),
            "starting" => add(
                &mut group,
                Member::new("slow", async |ctx: ServiceContext| {
                    println!("starting");
                    ctx.stopping().await;
                    Ok(())
                }),
            ),
            "pausing" => {
                let pause = Restart::default().min_pause(Duration::from_secs(30));
                let fails = || async |_: ServiceContext| Err("it broke".into());
                add(
                    &mut group,
                    Member::restartable("mq", fails)
                        .ready_when_started()
                        .on_error(Policy::Restart(pause)),
                );
            }
            "frozen" => add(
                &mut group,
                Member::new("stuck", async |ctx: ServiceContext| {
                    ctx.ready();
                    while !ctx.group().is_ready() {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    // Once the other service has said so.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    for _ in 0..64 {
                        tokio::spawn(async {
                            loop {
                                std::thread::park();
                            }
                        });
                    }
                    println!("frozen");
                    loop {
                        std::thread::park();
                    }
                }),
            ),
            "pipe" => add(
                &mut group,
                Member::new("noisy", async |ctx: ServiceContext| {
                    ctx.ready();
                    ctx.draining().await;
                    loop {
                        eprintln!("{}", "x".repeat(65_536));
                    }
                }),
            ),
            _ => {}
        }
        add(&mut group, Member::new("api", announce));
        if part == "before" {
            group.handle().stop();
        }
        let (messages, _) = messages_and_runs();
        let queue = Queue::bounded(messages);
        if part == "queue" {
            for message in 0..messages {
                queue.publish(message).expect("there is room");
            }
            let path = std::env::var_os(PROCESSED).expect("a path");
            let file = OpenOptions::new().append(true).open(path).expect("a file");
            let file = Arc::new(file);
            // A line at the file's end, then the acknowledgement.
            let handler = move |message: Arc<usize>| {
                let file = file.clone();
                async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    Ok((&*file).write_all(format!("{message}\n").as_bytes())?)
                }
            };
            let service = Consume::new(queue.consumer(), handler);
            add(
                &mut group,
                Member::new("mq", service.concurrency(16).prefetch(100)),
            );
        }
        if part == "twice" {
            let handle = group.handle();
            std::thread::spawn(move || {
                while !handle.is_ready() {}
                handle.stop();
            });
            assert_eq!(group.run_blocking().exit_code(), 0);
            let mut second = ServiceGroup::builder()
                .drain(Duration::ZERO)
                .build()
                .expect("it fits");
            add(&mut second, Member::new("again", announce));
            assert_eq!(second.run_blocking().exit_code(), 0);
            println!("ended");
            loop {
                std::thread::park();
            }
        }
        let report = group.run_blocking();
        if part == "queue" {
            let stats = queue.stats();
            println!(
                "ledger {} {} {}",
                stats.published, stats.acknowledged, stats.pending
            );
        }
        std::process::exit(report.exit_code())
    }

    // --- The tests ----------------------------------------------------------

    /// A process that plays a part, killed when a test fails.
    struct Player {
        child: Child,
        stdout: BufReader<std::process::ChildStdout>,
        signalled: Instant,
    }

    impl Player {
        fn start(part: &str) -> Self {
            Player::start_with(part, &[])
        }

        fn start_with(part: &str, variables: &[(&str, &OsStr)]) -> Self {
            let mut child = Command::new(std::env::current_exe().expect("it runs"))
                .env(PART, part)
                .envs(variables.iter().copied())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("it can be called again");
            let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
            Player {
                child,
                stdout,
                signalled: Instant::now(),
            }
        }

        fn ready(part: &str) -> Self {
            let mut player = Player::start(part);
            player.expect("ready");
            player
        }

        fn expect(&mut self, line: &str) {
            let mut read = String::new();
            self.stdout.read_line(&mut read).expect("a line");
            assert_eq!(read.trim_end(), line);
        }

        fn signal(&mut self, signal: Signal) {
            let id = i32::try_from(self.child.id()).expect("a process number");
            kill(Pid::from_raw(id), signal).expect("it lives");
            self.signalled = Instant::now();
        }

        /// Its end, and how long after the last signal. More than ten seconds are a failure.
        fn end(&mut self) -> (ExitStatus, Duration) {
            loop {
                if let Some(status) = self.child.try_wait().expect("a child") {
                    return (status, self.signalled.elapsed());
                }
                assert!(
                    self.signalled.elapsed() < Duration::from_secs(10),
                    "it hangs"
                );
                std::thread::sleep(Duration::from_millis(1));
            }
        }

        fn stderr(&mut self) -> Vec<String> {
            let mut all = String::new();
            let mut stderr = self.child.stderr.take().expect("a pipe");
            stderr.read_to_string(&mut all).expect("text");
            all.lines().map(str::to_owned).collect()
        }
    }

    impl Drop for Player {
        fn drop(&mut self) {
            // It has ended, or a test has failed.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// Not at once, and not late: real time, so with room for a busy machine.
    fn assert_about(took: Duration, milliseconds: u64) {
        let expected = Duration::from_millis(milliseconds);
        assert!(
            took >= expected.saturating_sub(Duration::from_millis(5)),
            "{took:?}"
        );
        assert!(took < expected + Duration::from_secs(2), "{took:?}");
    }

    fn s17() {
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            let mut player = Player::ready("twice");
            player.expect("ready");
            player.signal(Signal::SIGTERM);
            player.expect("ended");
            player.signal(signal);
            let (status, _) = player.end();
            assert_eq!(status.signal(), Some(signal as i32), "{status}");
        }
    }

    fn s20() {
        let endings = [
            (
                "obedient",
                Some(Signal::SIGTERM),
                0,
                "outcome=stopped reason=sigterm failed=- abandoned=-",
            ),
            (
                "obedient",
                Some(Signal::SIGINT),
                0,
                "outcome=stopped reason=sigint failed=- abandoned=-",
            ),
            (
                "failing",
                None,
                1,
                "outcome=failed reason=service:failing failed=failing abandoned=-",
            ),
            (
                "stubborn",
                Some(Signal::SIGTERM),
                75,
                "outcome=deadline_missed reason=sigterm failed=- abandoned=stuck",
            ),
            (
                "capped",
                Some(Signal::SIGTERM),
                75,
                "outcome=deadline_missed reason=sigterm failed=- abandoned=stuck",
            ),
            (
                "before",
                None,
                0,
                "outcome=stopped_before_start reason=handle failed=- abandoned=-",
            ),
        ];
        for (part, signal, code, line) in endings {
            let mut player = Player::start(part);
            if let Some(signal) = signal {
                player.expect("ready");
                player.signal(signal);
            }
            let (status, _) = player.end();
            let last = player.stderr().pop().expect("a report");
            assert_eq!(status.code(), Some(code), "{part}: {last}");
            let expected = format!("report exit_code={code} {line} total_ms=");
            assert!(last.starts_with(&expected), "{part}: {last}");
        }
    }

    fn s32() {
        for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
            let mut player = Player::ready("patient");
            player.signal(Signal::SIGINT);
            // The first has been heard, and nothing hurries.
            while !player.child_says("state=stopping") {}
            player.signal(signal);
            let (status, took) = player.end();
            assert_eq!(status.code(), Some(code), "{status}");
            assert!(took < Duration::from_millis(100), "{took:?}");
        }
    }

    impl Player {
        /// Whether the next line on standard error has this in it.
        fn child_says(&mut self, part: &str) -> bool {
            let stderr = self.child.stderr.as_mut().expect("a pipe");
            let mut line = Vec::new();
            let mut byte = [0];
            while stderr.read(&mut byte).expect("a byte") == 1 && byte[0] != b'\n' {
                line.push(byte[0]);
            }
            assert!(!line.is_empty(), "it ended");
            String::from_utf8(line).expect("text").contains(part)
        }
    }

    fn blocked() {
        let mut player = Player::ready("blocked");
        player.signal(Signal::SIGTERM);
        let (status, took) = player.end();
        assert_eq!(status.code(), Some(75));
        assert_about(took, 700);
        let last = player.stderr().pop().expect("a report");
        assert!(last.contains("outcome=deadline_missed"), "{last}");
        assert!(last.contains("stuck"), "{last}");
    }

    fn stuck_thread() {
        let mut player = Player::ready("thread");
        player.signal(Signal::SIGTERM);
        let (status, took) = player.end();
        assert_eq!(status.code(), Some(75));
        // Its level has half of the total, and all others have ended.
        assert_about(took, 350);
        let last = player.stderr().pop().expect("a report");
        assert!(last.contains("abandoned=stuck "), "{last}");
    }

    fn full_pipe() {
        let mut player = Player::ready("pipe");
        player.signal(Signal::SIGTERM);
        let (status, took) = player.end();
        assert_eq!(status.code(), Some(75));
        assert_about(took, 700);
    }

    fn lines() {
        let mut player = Player::ready("obedient");
        player.signal(Signal::SIGTERM);
        player.end();
        let mut lines = player.stderr();
        lines.pop();
        let expected = [
            "service=db state=starting",
            "service=db state=ready",
            "service=api state=starting",
            "service=api state=ready",
            "service=api state=stopping",
            "service=api state=exited",
            "service=db state=stopping",
            "service=db state=exited",
        ];
        assert_eq!(lines, expected);
    }

    fn hangup() {
        let mut player = Player::ready("hangup");
        for _ in 0..3 {
            player.signal(Signal::SIGHUP);
            player.expect("reloaded");
        }
        player.signal(Signal::SIGTERM);
        assert_eq!(player.end().0.code(), Some(0));

        let mut player = Player::ready("obedient");
        player.signal(Signal::SIGHUP);
        assert_eq!(player.end().0.signal(), Some(Signal::SIGHUP as i32));
    }

    /// As many hangups as come while one reload runs are one more, and none is forgotten.
    fn storm() {
        let mut player = Player::ready("storm");
        for _ in 0..5000 {
            player.signal(Signal::SIGHUP);
        }
        player.expect("reloaded");
        player.signal(Signal::SIGTERM);
        let (status, took) = player.end();
        assert_eq!(status.code(), Some(0));
        assert!(took < Duration::from_secs(2), "{took:?}");
    }

    fn during_start() {
        let mut player = Player::start("starting");
        player.expect("starting");
        player.signal(Signal::SIGTERM);
        let (status, took) = player.end();
        let lines = player.stderr();
        assert_eq!(status.code(), Some(0), "{lines:?}");
        assert!(took < Duration::from_millis(600), "{took:?}");
        let api = lines.iter().any(|it| it.contains("service=api"));
        assert!(!api, "never started: {lines:?}");
    }

    fn in_a_pause() {
        let mut player = Player::ready("pausing");
        while !player.child_says("service=mq state=restarting") {}
        player.signal(Signal::SIGTERM);
        let (status, took) = player.end();
        let last = player.stderr().pop().expect("a report");
        // It was down when it was asked to stop, and the exit code says so.
        assert_eq!(status.code(), Some(1), "{last}");
        assert!(
            last.contains("reason=sigterm failed=mq abandoned=-"),
            "{last}"
        );
        assert!(took < Duration::from_millis(600), "{took:?}");
    }

    fn frozen() {
        let mut player = Player::ready("frozen");
        player.expect("frozen");
        player.signal(Signal::SIGTERM);
        let (status, took) = player.end();
        assert_eq!(status.code(), Some(75));
        assert_about(took, 700);
        let last = player.stderr().pop().expect("a report");
        assert!(last.contains("reason=sigterm"), "{last}");
        assert!(last.contains("abandoned=db,stuck,api"), "{last}");
    }

    fn other_signals() {
        let mut player = Player::ready("usr1");
        player.signal(Signal::SIGUSR1);
        let (status, _) = player.end();
        let last = player.stderr().pop().expect("a report");
        assert_eq!(status.code(), Some(0), "{last}");
        assert!(last.contains("reason=signal:10"), "{last}");
    }

    /// How many messages the ledger is held to, and how often.
    fn messages_and_runs() -> (usize, usize) {
        match std::env::var_os("WHEELHOUSE_LONG") {
            Some(_) => (100_000, 10),
            None => (5_000, 2),
        }
    }

    /// Published is acknowledged and pending; what was acknowledged, and only that, was processed.
    fn ledger() {
        let (messages, runs) = messages_and_runs();
        let name = format!("wheelhouse-processed-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        for run in 0..runs {
            File::create(&path).expect("a file");
            let mut player = Player::start_with("queue", &[(PROCESSED, path.as_os_str())]);
            player.expect("ready");
            let enough = messages * (1 + run % 7) / 10;
            while processed(&path).len() < enough {
                std::thread::sleep(Duration::from_millis(5));
            }
            player.signal(Signal::SIGTERM);
            let (status, _) = player.end();
            assert_eq!(status.code(), Some(0));
            let mut line = String::new();
            player.stdout.read_line(&mut line).expect("text");
            let ledger: Vec<usize> = line
                .split_whitespace()
                .filter_map(|it| it.parse().ok())
                .collect();
            let [published, acknowledged, pending] = ledger[..] else {
                panic!("no ledger: {line}");
            };
            let processed = processed(&path);
            let once: HashSet<_> = processed.iter().collect();
            assert_eq!(once.len(), processed.len(), "processed twice");
            assert_eq!(published, messages);
            assert_eq!(acknowledged, processed.len());
            assert_eq!(acknowledged + pending, messages);
            assert!(pending > 0, "it was stopped midway");
        }
        std::fs::remove_file(&path).expect("the file");
    }

    fn processed(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).expect("text");
        text.lines().map(str::to_owned).collect()
    }
}
