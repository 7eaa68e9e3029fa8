//! What handlers have of the stop: a token, and WebSockets that say goodbye.

use std::future::Future;

use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use tokio_util::sync::CancellationToken;

/// An extractor: the token of the server's stop. Whatever a handler waits for, it can wait for this
/// beside it; the server waits for the handler, until its deadline.
///
/// ```
/// use axum::{Router, routing::get};
/// use wheelhouse_servicegroup::http::Stopping;
///
/// async fn long_poll(stopping: Stopping) -> &'static str {
///     stopping.token().cancelled().await;
///     "ask again elsewhere"
/// }
/// let router: Router = Router::new().route("/", get(long_poll));
/// ```
#[derive(Debug, Clone)]
pub struct Stopping(pub(super) CancellationToken);

impl Stopping {
    /// Cancelled when the server is told to stop.
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.0
    }
}

impl<S: Sync> FromRequestParts<S> for Stopping {
    type Rejection = StatusCode;

    /// # Errors
    ///
    /// 500, when the router is served by something else than an [`HttpServer`](super::HttpServer).
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, StatusCode> {
        let stopping = parts.extensions.get::<Stopping>();
        stopping.cloned().ok_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// Answers a request for a WebSocket; `handler` gets one that closes when the server stops.
///
/// ```
/// use axum::extract::ws::WebSocketUpgrade;
/// use axum::response::Response;
/// use wheelhouse_servicegroup::http::{Socket, Stopping, upgrade};
///
/// async fn echo(request: WebSocketUpgrade, stopping: Stopping) -> Response {
///     upgrade(request, stopping, async |mut socket: Socket| {
///         while let Some(Ok(message)) = socket.recv().await {
///             if socket.send(message).await.is_err() {
///                 break;
///             }
///         }
///     })
/// }
/// ```
pub fn upgrade<F, R>(request: WebSocketUpgrade, stopping: Stopping, handler: F) -> Response
where
    F: FnOnce(Socket) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    request.on_upgrade(|inner| {
        handler(Socket {
            inner,
            stopping: stopping.0,
            told: false,
        })
    })
}

/// A WebSocket of a server that may stop.
#[derive(Debug)]
pub struct Socket {
    inner: WebSocket,
    stopping: CancellationToken,
    told: bool,
}

impl Socket {
    /// The next message; `None` once the peer has closed. When the server stops, the peer is sent a
    /// close frame, "going away", once, and its last messages come until it closes as well.
    ///
    /// # Errors
    ///
    /// What breaks the connection. It is over then.
    pub async fn recv(&mut self) -> Option<Result<Message, axum::Error>> {
        if !self.told {
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => {
                    self.told = true;
                    let close = CloseFrame {
                        code: close_code::AWAY,
                        reason: "going away".into(),
                    };
                    if let Err(error) = self.inner.send(Message::Close(Some(close))).await {
                        return Some(Err(error));
                    }
                }
                message = self.inner.recv() => return message,
            }
        }
        self.inner.recv().await
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// When the connection is broken, or the close frame has been sent.
    pub async fn send(&mut self, message: Message) -> Result<(), axum::Error> {
        self.inner.send(message).await
    }
}
