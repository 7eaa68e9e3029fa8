//! HTTP and gRPC through the layers: statuses, codes, and the ends of bodies.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full};
use tower::{Layer, Service, ServiceExt, service_fn};
use wheelhouse_resilience::tower::{
    BreakerLayer, ByHost, ByPath, ClassifyResponse, GrpcStatus, HttpStatus, Key, KeyedLayer,
};
use wheelhouse_resilience::{Breaker, BreakerStats, Registry, Verdict};

type Bytes = std::collections::VecDeque<u8>;

/// Frames one after the other: data, trailers, or an error.
struct Frames(Vec<Result<Frame<Bytes>, &'static str>>);

impl Frames {
    fn new(frames: impl IntoIterator<Item = Result<Frame<Bytes>, &'static str>>) -> Self {
        let mut frames: Vec<_> = frames.into_iter().collect();
        frames.reverse();
        Frames(frames)
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready(self.0.pop())
    }
}

fn data() -> Result<Frame<Bytes>, &'static str> {
    Ok(Frame::data(Bytes::from(*b"data")))
}

fn trailers(code: &'static str) -> Result<Frame<Bytes>, &'static str> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(code));
    Ok(Frame::trailers(trailers))
}

/// What the breaker has counted once the response is there, and once `read` frames were read and the
/// body was dropped.
async fn counted<B>(
    classify: impl ClassifyResponse + Clone,
    response: Response<B>,
    read: usize,
) -> (BreakerStats, BreakerStats)
where
    B: Body + Unpin,
{
    let breaker = Breaker::builder().build().unwrap();
    let service = BreakerLayer::new(breaker.clone())
        .classify(classify)
        .until_body_ends()
        .layer(service_fn(move |response: Response<B>| {
            ready(Ok::<_, Infallible>(response))
        }));
    let response = service.oneshot(response).await.unwrap();
    let at_head = breaker.stats();
    let mut body = response.into_body();
    for _ in 0..read {
        if body.frame().await.is_none() {
            break;
        }
    }
    drop(body);
    (at_head, breaker.stats())
}

fn verdicts(stats: &BreakerStats) -> [u64; 4] {
    [
        stats.successes,
        stats.failures,
        stats.ignored,
        stats.cancelled,
    ]
}

const NONE: [u64; 4] = [0; 4];
const SUCCESS: [u64; 4] = [1, 0, 0, 0];
const FAILURE: [u64; 4] = [0, 1, 0, 0];
const IGNORED: [u64; 4] = [0, 0, 1, 0];
const CANCELLED: [u64; 4] = [0, 0, 0, 1];

#[tokio::test]
async fn http_bodies_count_at_their_end() {
    let ok = || Response::new(Frames::new([data(), data()]));
    let (head, end) = counted(HttpStatus, ok(), 3).await;
    assert_eq!((verdicts(&head), verdicts(&end)), (NONE, SUCCESS));
    let (_, end) = counted(HttpStatus, ok(), 1).await;
    assert_eq!(verdicts(&end), CANCELLED);

    let broken = Response::new(Frames::new([data(), Err("reset")]));
    let (head, end) = counted(HttpStatus, broken, 9).await;
    assert_eq!((verdicts(&head), verdicts(&end)), (NONE, FAILURE));

    let mut failed = ok();
    *failed.status_mut() = http::StatusCode::BAD_GATEWAY;
    let (head, end) = counted(HttpStatus, failed, 9).await;
    assert_eq!((verdicts(&head), verdicts(&end)), (FAILURE, FAILURE));
}

/// A body that says that nothing more comes is not read further by servers and clients.
#[tokio::test]
async fn bodies_that_know_their_end_are_not_waited_for() {
    let empty = Response::new(Empty::<Bytes>::new());
    let (head, _) = counted(HttpStatus, empty, 0).await;
    assert_eq!(verdicts(&head), SUCCESS);

    let whole = Response::new(Full::new(Bytes::from(*b"data")));
    let (head, end) = counted(HttpStatus, whole, 1).await;
    assert_eq!((verdicts(&head), verdicts(&end)), (NONE, SUCCESS));
}

/// A body that panics behind a `catch_unwind` has failed.
#[test]
fn a_body_that_panics_is_a_failure() {
    struct Bug;
    impl Body for Bug {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            panic!("a bug")
        }
    }
    let breaker = Breaker::builder().build().unwrap();
    let mut service = BreakerLayer::new(breaker.clone())
        .classify(HttpStatus)
        .until_body_ends()
        .layer(service_fn(|()| {
            ready(Ok::<_, Infallible>(Response::new(Bug)))
        }));
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut context).is_ready());
    let mut call = Box::pin(service.call(()));
    let Poll::Ready(Ok(response)) = call.as_mut().poll(&mut context) else {
        panic!("it is ready");
    };
    let mut body = Box::pin(response.into_body());
    let poll = AssertUnwindSafe(|| body.as_mut().poll_frame(&mut context).is_ready());
    assert!(catch_unwind(poll).is_err());
    assert_eq!(verdicts(&breaker.stats()), FAILURE);
    drop(body);
    assert_eq!(verdicts(&breaker.stats()), FAILURE);
}

/// Whoever knows the length of a body stops reading when it has come, without asking for its end.
#[tokio::test]
async fn bodies_of_known_length_end_with_their_last_byte() {
    let announced = |length: &str| {
        Response::builder()
            .header("content-length", length)
            .body(Frames::new([data(), data()]))
            .unwrap()
    };
    let (head, end) = counted(HttpStatus, announced("8"), 2).await;
    assert_eq!((verdicts(&head), verdicts(&end)), (NONE, SUCCESS));
    let (_, end) = counted(HttpStatus, announced("8"), 1).await;
    assert_eq!(verdicts(&end), CANCELLED);
    let (_, end) = counted(HttpStatus, announced("eight"), 2).await;
    assert_eq!(verdicts(&end), CANCELLED);
    // The code is still to come.
    let (_, end) = counted(GrpcStatus, announced("8"), 2).await;
    assert_eq!(verdicts(&end), CANCELLED);

    /// Knows its length, and says that it has ended only when it is asked once more.
    struct Sized(Frames);
    impl Body for Sized {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            Pin::new(&mut self.0).poll_frame(context)
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(4 * self.0.0.len() as u64)
        }
    }
    let sized = || Response::new(Sized(Frames::new([data(), data()])));
    let (head, end) = counted(HttpStatus, sized(), 2).await;
    assert_eq!((verdicts(&head), verdicts(&end)), (NONE, SUCCESS));
    let (_, end) = counted(HttpStatus, sized(), 1).await;
    assert_eq!(verdicts(&end), CANCELLED);
}

#[tokio::test]
async fn grpc_codes_come_in_trailers_or_headers() {
    for (code, expected) in [
        ("0", SUCCESS),
        ("1", IGNORED),
        ("2", FAILURE),
        ("3", SUCCESS),
        ("4", FAILURE),
        ("5", SUCCESS),
        ("8", FAILURE),
        ("13", FAILURE),
        ("14", FAILURE),
        ("15", FAILURE),
        ("16", SUCCESS),
        ("99", FAILURE),
        ("none", FAILURE),
    ] {
        let streamed = Response::new(Frames::new([data(), trailers(code)]));
        let (head, end) = counted(GrpcStatus, streamed, 2).await;
        assert_eq!(
            (verdicts(&head), verdicts(&end)),
            (NONE, expected),
            "{code}"
        );

        let mut at_once = Response::new(Frames::new([]));
        at_once
            .headers_mut()
            .insert("grpc-status", HeaderValue::from_static(code));
        let (head, end) = counted(GrpcStatus, at_once, 1).await;
        assert_eq!(
            (verdicts(&head), verdicts(&end)),
            (expected, expected),
            "{code}"
        );
    }
    let without = Response::new(Frames::new([data()]));
    let (_, end) = counted(GrpcStatus, without, 9).await;
    assert_eq!(verdicts(&end), FAILURE);
    let not_found = Response::builder()
        .status(404)
        .body(Frames::new([]))
        .unwrap();
    let (head, _) = counted(GrpcStatus, not_found, 0).await;
    assert_eq!(verdicts(&head), FAILURE);
}

/// R11: hosts are told apart whether they come in the URI or the header, in any case of letters.
#[tokio::test]
async fn r11_hosts_and_paths_are_keys() {
    let by_uri = |uri: &str| Request::get(uri).body(()).unwrap();
    assert_eq!(
        ByHost.key(&by_uri("http://user:word@A.example/x")),
        "a.example"
    );
    assert_eq!(ByHost.key(&by_uri("/x")), "");
    assert_eq!(ByPath.key(&by_uri("http://a.example/x?y=1")), "/x");

    let registry = Registry::builder()
        .default_breaker(Breaker::consecutive())
        .build()
        .unwrap();
    let client = KeyedLayer::by(registry.clone(), ByHost)
        .classify(HttpStatus)
        .layer(service_fn(|request: Request<()>| {
            let dead = request.uri().host() == Some("dead.example");
            let status = if dead { 503 } else { 200 };
            ready(Ok::<_, Infallible>(
                Response::builder().status(status).body(()).unwrap(),
            ))
        }));
    for _ in 0..20 {
        for host in ["one.example", "dead.example", "two.example"] {
            let request = by_uri(&format!("http://{host}/"));
            let _ = client.clone().oneshot(request).await;
        }
    }
    assert_eq!(registry.get("dead.example").stats().failures, 6);
    assert_eq!(registry.get("one.example").stats().successes, 20);
    assert_eq!(registry.get("two.example").stats().rejected, 0);
}

#[test]
fn a_code_is_judged_by_its_number() {
    assert_eq!(GrpcStatus::verdict(14), Verdict::Failure);
    assert_eq!(GrpcStatus::verdict(0), Verdict::Success);
}
