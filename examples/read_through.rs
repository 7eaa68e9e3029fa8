//! A thousand readers ask for the same page at once, and it is rendered once. When the renderer fails
//! later, they go on to get the old page, for as long as it may be stale.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use wheelhouse::cache::{Cache, TakeError};
use wheelhouse::wheel::ManualClock;

const READERS: usize = 1_000;

type Page = Arc<str>;

/// A renderer that is slow, and breaks down after its first page.
#[derive(Default)]
struct Renderer {
    renders: AtomicU32,
}

impl Renderer {
    async fn render(self: Arc<Self>, path: &'static str) -> Result<Page, String> {
        let number = self.renders.fetch_add(1, Ordering::Relaxed) + 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
        match number {
            1 => Ok(format!("{path}, as rendered the first time").into()),
            _ => Err(format!("the renderer is down, {number} attempts")),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A clock that is moved by hand, so that nobody has to wait for minutes.
    let clock = ManualClock::new();
    let pages: Cache<&str, Page> = Cache::builder()
        .capacity(10_000)
        .time_to_live(Duration::from_secs(60))
        .jitter(0.0)
        .clock(clock.clone())
        // Old after ten seconds: loaded anew in the background, while the old one is served.
        .refresh_after(Duration::from_secs(10), |reload| drop(tokio::spawn(reload)))
        // And served for five minutes longer when that fails.
        .stale_on_error(Duration::from_secs(300))
        .build()?;
    let renderer = Arc::new(Renderer::default());

    let served = read_at_once(&pages, &renderer).await;
    println!("{served} readers at once: {} load", pages.stats().loads_ok);

    clock.advance(Duration::from_secs(50));
    let served = read_at_once(&pages, &renderer).await;
    println!("{served} readers got the old page at once, while it was loaded anew");
    while pages.stats().loads_failed == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("that load failed");

    clock.advance(Duration::from_secs(200));
    let served = read_at_once(&pages, &renderer).await;
    println!("{served} readers got the old page, 250 s old: stale beats down");

    clock.advance(Duration::from_secs(200));
    let load = renderer.render("/prices");
    match pages.try_take_refreshing_async("/prices", load).await {
        Err(TakeError::Failed(error)) => println!("450 s old, it is gone: {error}"),
        other => return Err(format!("an error was expected, not {other:?}").into()),
    }
    println!("{}", pages.report());
    Ok(())
}

/// How many of a thousand readers got a page.
async fn read_at_once(pages: &Cache<&'static str, Page>, renderer: &Arc<Renderer>) -> usize {
    let readers: JoinSet<_> = (0..READERS)
        .map(|_| {
            let (pages, renderer) = (pages.clone(), renderer.clone());
            async move {
                let load = renderer.render("/prices");
                pages.try_take_refreshing_async("/prices", load).await
            }
        })
        .collect();
    let read = readers.join_all().await;
    read.iter().filter(|page| page.is_ok()).count()
}
