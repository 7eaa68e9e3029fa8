//! A webhook that is delivered in the end, to an endpoint that fails the first times.
//!
//! ```console
//! cargo run --release --example retry_webhook
//! ```
//!
//! The delivery is scheduled once; its retry policy does the rest. The endpoint, on a port of this
//! machine, hangs at first, then is overloaded twice, and then takes the message. Every attempt has
//! a timeout, and the pauses between them double. A message that the endpoint refuses for good
//! (400 to 499) is not tried again.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wheelhouse::wheel::scheduler::{Failure, Grace, Refusal, Retry, Run, Scheduler, TaskError};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let endpoint = tokio::spawn(endpoint(listener));
    let start = Instant::now();
    let say = move |what: &str| println!("{:>5} ms  {what}", start.elapsed().as_millis());

    let scheduler = Scheduler::builder().build()?;
    let retry = Retry::exponential(Duration::from_millis(100))
        .max_attempts(6)
        .jitter(0.2)
        .only_if(worth_another_attempt);
    let webhook = |path: &'static str| {
        scheduler
            .task()
            .name(path)
            .retry(retry.clone())
            .timeout(Duration::from_millis(500))
            .after(Duration::from_millis(50), move || async move {
                let attempt = Run::current().map_or(0, |run| run.attempt());
                say(&format!("{path}: attempt {attempt}"));
                deliver(address, path, r#"{"event":"paid","order":17}"#).await
            })
            .map_err(Refusal::from)
    };
    let paid = webhook("/orders/paid")?;
    let gone = webhook("/no/such/hook")?;

    let gone = gone.await;
    say(&format!("/no/such/hook: {gone:?}"));
    let paid = paid.await;
    say(&format!("/orders/paid: {paid:?}"));

    let stats = scheduler.stats();
    println!(
        "{} attempts: {} delivered, {} refused, {} timed out, {} tried again",
        stats.started, stats.succeeded, stats.failed, stats.timed_out, stats.retried
    );
    scheduler.shutdown(Grace::cancel_pending()).await;
    endpoint.abort();
    match (paid, gone) {
        (Ok(200), Err(TaskError::Failed(Undelivered::Status(404)))) if stats.retried >= 3 => Ok(()),
        (paid, gone) => Err(format!("not as it should be: {paid:?}, {gone:?}, {stats:?}").into()),
    }
}

/// Why an attempt failed.
#[derive(Debug)]
enum Undelivered {
    /// The endpoint could not be reached, or did not answer in HTTP.
    Io(io::Error),
    /// It answered with this status.
    Status(u16),
}

impl fmt::Display for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Status(status) => write!(f, "status {status}"),
        }
    }
}

impl From<io::Error> for Undelivered {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Whatever is not the message's own fault: errors of the network, timeouts, an endpoint in trouble.
fn worth_another_attempt(failure: &Failure<'_>) -> bool {
    !matches!(failure.error(), Some(Undelivered::Status(400..=499)))
}

/// One attempt: a POST on a connection of its own.
async fn deliver(address: SocketAddr, path: &str, body: &str) -> Result<u16, Undelivered> {
    let mut connection = TcpStream::connect(address).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    match status {
        Some(status @ 200..=299) => Ok(status),
        Some(status) => Err(Undelivered::Status(status)),
        None => Err(io::Error::other(format!("not an answer in HTTP: {answer:?}")).into()),
    }
}

/// Answers one connection after another; knows one path, where it fails three times.
async fn endpoint(listener: TcpListener) -> io::Result<()> {
    let mut failures = 3;
    let mut hung = Vec::new();
    loop {
        let (mut connection, _) = listener.accept().await?;
        let mut request = vec![0; 4096];
        let length = connection.read(&mut request).await?;
        let known = request[..length].starts_with(b"POST /orders/paid ");
        let status = match failures {
            _ if !known => "404 Not Found",
            0 => "200 OK",
            3 => {
                failures -= 1;
                // Says nothing, and leaves the connection open.
                hung.push(connection);
                continue;
            }
            _ => {
                failures -= 1;
                "503 Service Unavailable"
            }
        };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        connection.write_all(answer.as_bytes()).await?;
    }
}
