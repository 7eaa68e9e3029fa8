//! Workloads that count what is on the heap.

use std::hint::black_box;

use super::capacity;
use super::keys::{key, value};
use crate::harness::{Load, Outcome, Sample, Wrong};
use crate::peers::caches::SharedCache;

/// Live bytes of a full cache over its entries, less the sixteen of a key and its value. What an
/// empty one has counts too: some reserve everything at once.
pub(super) fn bytes<C: SharedCache>(load: &Load) -> Outcome {
    let live_bytes = load.live_bytes.ok_or_else(|| {
        Wrong("the heap is counted by versus-counted, which gives the means".to_owned())
    })?;
    let entries = capacity(load).div_ceil(if load.smoke { 1 } else { C::FEWER });
    // What the subject has for the whole process is not a cache's.
    drop(black_box(C::new(entries)));
    let before = live_bytes();
    let cache = C::new(entries);
    for number in 0..2 * entries as u64 {
        cache.insert(key(number), value(key(number)));
    }
    let len = cache.settled_len();
    let grown = live_bytes() - before;
    if len < entries / 2 || len > C::most(entries) {
        return Err(Wrong(format!(
            "{len} entries where there is room for {entries}"
        )));
    }
    drop(black_box(cache));
    let each = grown as f64 / len as f64 - 16.0;
    Ok(vec![Sample::median("bytes", "bytes", each)])
}
