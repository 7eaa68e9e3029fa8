//! What systemd sees and hands over, with a parent process in its place.

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;
    use std::process::{Child, Command, ExitCode, Stdio};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use axum::Router;
    use axum::routing::get;
    use libtest_mimic::{Arguments, Trial};
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use sd_notify::NotifyState;
    use wheelhouse_servicegroup::http::HttpServer;
    use wheelhouse_servicegroup::{Preset, ServiceGroup, inherited_listener};

    /// Set in the process that is the server.
    const AS_SERVER: &str = "WHEELHOUSE_AS_SERVER";

    pub(super) fn main() -> ExitCode {
        if std::env::var_os(AS_SERVER).is_some() {
            serve();
        }
        let trials = [
            ("s13_an_inherited_socket_loses_no_request", s13 as fn()),
            ("s54_a_reload_sends_both_fields_and_ready_after", s54),
        ]
        .map(|(name, test)| {
            Trial::test(name, move || {
                test();
                Ok(())
            })
        });
        libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
    }

    /// Serves on the socket that it was given, and tells where to that is asked for.
    fn serve() -> ! {
        let mut group = ServiceGroup::builder()
            .preset(Preset::Systemd)
            .on_reload("config", async || Ok(()))
            .build()
            .expect("it fits");
        let answer = get(async || {
            tokio::time::sleep(Duration::from_millis(5)).await;
            "done"
        });
        let listener = inherited_listener(0)
            .expect("a socket")
            .expect("it was given");
        assert!(
            inherited_listener(0).expect("nothing").is_none(),
            "it is taken"
        );
        let server = HttpServer::from_listener(listener, Router::new().route("/", answer));
        group.add("api", server).expect("it can be added");
        std::process::exit(group.run_blocking().exit_code())
    }

    /// A server, and the socket that it sends its messages to.
    struct Server {
        child: Child,
        messages: UnixDatagram,
    }

    impl Server {
        fn start(listener: &TcpListener, name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("wh-{}-{name}", std::process::id()));
            let messages = UnixDatagram::bind(&path).expect("a socket");
            messages
                .set_read_timeout(Some(Duration::from_secs(10)))
                .expect("a time");
            // The socket is the child's standard input, number 0.
            let socket = OwnedFd::from(listener.try_clone().expect("a copy"));
            let child = Command::new(std::env::current_exe().expect("it runs"))
                .env(AS_SERVER, "1")
                .env("LISTEN_FDS", "1")
                .env("LISTEN_FDS_FIRST_FD", "0")
                .env("NOTIFY_SOCKET", &path)
                .env("WATCHDOG_USEC", "100000")
                .stdin(Stdio::from(socket))
                .stderr(Stdio::null())
                .spawn()
                .expect("it can be called again");
            Server { child, messages }
        }

        /// The fields of the next message with this one, by which many others may come.
        fn expect(&self, field: &str) -> Vec<String> {
            loop {
                let mut message = [0; 1024];
                let length = self.messages.recv(&mut message).expect("a message");
                let text = String::from_utf8_lossy(&message[..length]).into_owned();
                let fields: Vec<_> = text.lines().map(str::to_owned).collect();
                if fields.iter().any(|it| it == field) {
                    return fields;
                }
            }
        }

        fn signal(&self, signal: Signal) {
            let id = i32::try_from(self.child.id()).expect("a process number");
            kill(Pid::from_raw(id), signal).expect("it lives");
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            // It has ended, or a test has failed.
            let _ = self.child.kill();
            let _ = self.child.wait();
            if let Ok(address) = self.messages.local_addr()
                && let Some(path) = address.as_pathname()
            {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    fn s13() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut old = Server::start(&listener, "old");
        old.expect("READY=1");
        let enough = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let enough = enough.clone();
                thread::spawn(move || {
                    let mut answered = 0;
                    while !enough.load(Ordering::SeqCst) {
                        request(address);
                        answered += 1;
                    }
                    answered
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(100));
        let mut new = Server::start(&listener, "new");
        new.expect("READY=1");
        old.signal(Signal::SIGTERM);
        assert_eq!(old.child.wait().expect("a child").code(), Some(0));
        thread::sleep(Duration::from_millis(100));
        enough.store(true, Ordering::SeqCst);
        for client in clients {
            assert!(client.join().expect("no request has failed") > 0);
        }
        new.signal(Signal::SIGTERM);
        assert_eq!(new.child.wait().expect("a child").code(), Some(0));
    }

    /// Fails when the request does.
    fn request(address: SocketAddr) {
        let mut stream = TcpStream::connect(address).expect("the socket is never closed");
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.ends_with("done"), "{answer}");
    }

    fn s54() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut server = Server::start(&listener, "reload");
        let ready = server.expect("READY=1");
        assert!(ready.contains(&"STATUS=serving".to_owned()));
        server.expect("WATCHDOG=1");
        let before = monotonic_micros();
        server.signal(Signal::SIGHUP);
        let reloading = server.expect("RELOADING=1");
        let at = reloading
            .iter()
            .find_map(|it| it.strip_prefix("MONOTONIC_USEC="))
            .expect("both fields in one message");
        let at: i128 = at.parse().expect("a number");
        assert!((before..=monotonic_micros()).contains(&at), "{at}");
        server.expect("READY=1");
        server.signal(Signal::SIGTERM);
        let stopping = server.expect("STOPPING=1");
        assert!(
            stopping.contains(&"STATUS=stopping: sigterm".to_owned()),
            "{stopping:?}"
        );
        assert!(stopping.contains(&"EXTEND_TIMEOUT_USEC=80000000".to_owned()));
        assert_eq!(server.child.wait().expect("a child").code(), Some(0));
        server.messages.set_nonblocking(true).expect("it can be");
        let mut rest = [0; 64];
        let end = server.messages.recv(&mut rest).expect_err("nothing more");
        assert_eq!(end.kind(), ErrorKind::WouldBlock);
    }

    fn monotonic_micros() -> i128 {
        match NotifyState::monotonic_usec_now() {
            Ok(NotifyState::MonotonicUsec(now)) => now,
            other => panic!("{other:?}"),
        }
    }
}
