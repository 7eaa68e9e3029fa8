//! Chains of entries, and the heaps that a chain becomes when its minimum is
//! wanted.
//!
//! An entry is 8 bytes: the low half of the tick it is filed under, and the
//! index of a node. A chain is a list of chunks recycled through pools, in the
//! order in which entries were filed: the first chunk is one cache line, so
//! that a timer alone in its slot costs little, every further one is four.
//!
//! # Invariants
//! - I4: every chunk is either in exactly one chain or on its pool's free list.
//! - I5: a slot is empty exactly when its two references are zero; a chunk
//!   holds `start..end`, which is not empty.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::segments::Segments;

/// A tick's low half above a node's index; ordered by tick.
pub(super) type Entry = u64;

#[inline]
pub(super) fn entry(filed: u32, index: u32) -> Entry {
    u64::from(filed) << 32 | u64::from(index)
}

#[inline]
pub(super) fn filed_of(entry: Entry) -> u32 {
    (entry >> 32) as u32
}

#[inline]
pub(super) fn index_of(entry: Entry) -> u32 {
    entry as u32
}

const SMALL_ENTRIES: usize = 7;
/// Entries of a chunk at most.
pub(super) const BIG_ENTRIES: usize = 31;

/// Room for the entries of any chunk.
pub(super) type Buffer = [Entry; BIG_ENTRIES];

/// Refers to nothing (0), a chunk or a heap: the kind in the low two bits.
type Ref = u32;
const KIND: u32 = 3;
const SMALL: u32 = 1;
const BIG: u32 = 2;
const HEAP: u32 = 3;

/// Chunks of one size at most, and heaps: what a reference has bits for.
const MOST: u32 = u32::MAX >> 2;

/// One slot: the ends of its chain, or its heap. All zero when empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Slot {
    head: Ref,
    tail: Ref,
}

impl Slot {
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.tail == 0
    }
}

#[derive(Debug)]
#[repr(C, align(64))]
struct Chunk<const N: usize> {
    next: Ref,
    start: u16,
    end: u16,
    entries: [Entry; N],
}

#[derive(Debug)]
struct Pool<const N: usize> {
    chunks: Segments<Chunk<N>>,
    /// First free chunk plus one; the rest follow through `next`.
    free: u32,
    fresh: u32,
}

impl<const N: usize> Pool<N> {
    const fn new() -> Self {
        Self {
            chunks: Segments::new(),
            free: 0,
            fresh: 0,
        }
    }

    /// Takes a chunk that holds one entry.
    fn alloc(&mut self, first: Entry) -> u32 {
        let index = if self.free == 0 {
            let index = self.fresh;
            assert!(
                index < MOST,
                "a wheel holds at most 2^30 - 1 chunks of a size"
            );
            if index as usize >= self.chunks.capacity() {
                self.chunks.grow(|| Chunk {
                    next: 0,
                    start: 0,
                    end: 0,
                    entries: [0; N],
                });
            }
            self.fresh += 1;
            index
        } else {
            let index = self.free - 1;
            self.free = self.chunks[index as usize].next;
            index
        };
        let chunk = &mut self.chunks[index as usize];
        chunk.next = 0;
        chunk.start = 0;
        chunk.end = 1;
        chunk.entries[0] = first;
        index
    }

    fn free(&mut self, index: u32) {
        self.chunks[index as usize].next = self.free;
        self.free = index + 1;
    }

    #[inline]
    fn push(&mut self, index: u32, entry: Entry) -> bool {
        let chunk = &mut self.chunks[index as usize];
        let end = usize::from(chunk.end);
        if end < N {
            chunk.entries[end] = entry;
            chunk.end += 1;
            true
        } else {
            false
        }
    }

    #[inline]
    fn touch_end(&self, index: u32) -> u32 {
        let chunk = &self.chunks[index as usize];
        let written = chunk.entries.get(usize::from(chunk.end));
        written.map_or(0, |entry| *entry as u32)
    }

    fn free_chunks(&self) -> usize {
        let mut count = 0;
        let mut next = self.free;
        while next != 0 {
            count += 1;
            assert!(count <= self.fresh as usize, "I4: a pool's free list loops");
            next = self.chunks[(next - 1) as usize].next;
        }
        count
    }
}

/// The entries of all chains and heaps of a wheel.
#[derive(Debug)]
pub(super) struct Chains {
    small: Pool<SMALL_ENTRIES>,
    big: Pool<BIG_ENTRIES>,
    heaps: Vec<BinaryHeap<Reverse<Entry>>>,
    free_heaps: Vec<u32>,
}

/// What a chunk says about itself, whatever its size.
struct View<'a> {
    next: Ref,
    entries: &'a [Entry],
}

impl Chains {
    pub(super) const fn new() -> Self {
        Self {
            small: Pool::new(),
            big: Pool::new(),
            heaps: Vec::new(),
            free_heaps: Vec::new(),
        }
    }

    /// Appends an entry; returns whether the slot was empty.
    #[inline(always)]
    pub(super) fn push(&mut self, slot: &mut Slot, entry: Entry) -> bool {
        let index = slot.tail >> 2;
        let pushed = match slot.tail & KIND {
            BIG => self.big.push(index, entry),
            SMALL => self.small.push(index, entry),
            _ => false,
        };
        if pushed {
            return false;
        }
        self.push_slowly(slot, entry)
    }

    /// Loads the end of a chain.
    #[inline]
    pub(super) fn touch_end(&self, slot: Slot) -> u32 {
        let index = slot.tail >> 2;
        match slot.tail & KIND {
            BIG => self.big.touch_end(index),
            SMALL => self.small.touch_end(index),
            _ => 0,
        }
    }

    #[inline(never)]
    fn push_slowly(&mut self, slot: &mut Slot, entry: Entry) -> bool {
        let index = slot.tail >> 2;
        match slot.tail & KIND {
            HEAP => {
                self.heaps[index as usize].push(Reverse(entry));
                false
            }
            kind @ (BIG | SMALL) => {
                let added = self.big.alloc(entry) << 2 | BIG;
                if kind == BIG {
                    self.big.chunks[index as usize].next = added;
                } else {
                    self.small.chunks[index as usize].next = added;
                }
                slot.tail = added;
                false
            }
            _ => {
                slot.head = self.small.alloc(entry) << 2 | SMALL;
                slot.tail = slot.head;
                true
            }
        }
    }

    #[inline]
    fn view(&self, chunk: Ref) -> View<'_> {
        let index = (chunk >> 2) as usize;
        if chunk & KIND == BIG {
            let chunk = &self.big.chunks[index];
            View {
                next: chunk.next,
                entries: &chunk.entries[usize::from(chunk.start)..usize::from(chunk.end)],
            }
        } else {
            let chunk = &self.small.chunks[index];
            View {
                next: chunk.next,
                entries: &chunk.entries[usize::from(chunk.start)..usize::from(chunk.end)],
            }
        }
    }

    #[inline]
    fn free(&mut self, chunk: Ref) {
        if chunk & KIND == BIG {
            self.big.free(chunk >> 2);
        } else {
            self.small.free(chunk >> 2);
        }
    }

    /// The slot's first entry: the one filed first, of a heap the least.
    pub(super) fn front(&self, slot: Slot) -> Option<Entry> {
        match slot.head & KIND {
            0 => None,
            HEAP => {
                let heap = &self.heaps[(slot.head >> 2) as usize];
                heap.peek().map(|entry| entry.0)
            }
            _ => self.view(slot.head).entries.first().copied(),
        }
    }

    /// Takes the slot's first entry out.
    pub(super) fn pop_front(&mut self, slot: &mut Slot) {
        let index = (slot.head >> 2) as usize;
        let emptied = match slot.head & KIND {
            0 => return,
            HEAP => {
                let heap = &mut self.heaps[index];
                heap.pop();
                if heap.is_empty() {
                    self.heaps[index] = BinaryHeap::new();
                    self.free_heaps.push(index as u32);
                    *slot = Slot::default();
                }
                return;
            }
            BIG => {
                let chunk = &mut self.big.chunks[index];
                chunk.start += 1;
                chunk.start == chunk.end
            }
            _ => {
                let chunk = &mut self.small.chunks[index];
                chunk.start += 1;
                chunk.start == chunk.end
            }
        };
        if emptied {
            self.drop_head(slot);
        }
    }

    /// Frees the head chunk.
    fn drop_head(&mut self, slot: &mut Slot) {
        let View { next, .. } = self.view(slot.head);
        self.free(slot.head);
        slot.head = next;
        if next == 0 {
            slot.tail = 0;
        }
    }

    /// Copies the first chunk to `buffer`, frees it and returns where in the
    /// buffer its entries are; nowhere once the slot is empty. Of a heap the
    /// order is any.
    #[inline]
    pub(super) fn take_chunk(&mut self, slot: &mut Slot, buffer: &mut Buffer) -> Range<usize> {
        if slot.head & KIND == HEAP {
            self.heap_to_chain(slot);
        }
        let index = slot.head >> 2;
        // Whole chunks are copied, since a copy of known size is short.
        let (next, start, end) = match slot.head & KIND {
            BIG => {
                let chunk = &self.big.chunks[index as usize];
                *buffer = chunk.entries;
                (chunk.next, chunk.start, chunk.end)
            }
            SMALL => {
                let chunk = &self.small.chunks[index as usize];
                buffer[..SMALL_ENTRIES].copy_from_slice(&chunk.entries);
                (chunk.next, chunk.start, chunk.end)
            }
            _ => return 0..0,
        };
        self.free(slot.head);
        slot.head = next;
        if next == 0 {
            slot.tail = 0;
        } else {
            self.touch(next);
        }
        usize::from(start)..usize::from(end)
    }

    /// Loads every line of a big chunk, so that its cache misses overlap with
    /// what is done until it is taken.
    #[inline]
    fn touch(&self, chunk: Ref) {
        if chunk & KIND == BIG {
            let entries = &self.big.chunks[(chunk >> 2) as usize].entries;
            std::hint::black_box(entries[0] ^ entries[8] ^ entries[16] ^ entries[24]);
        }
    }

    /// Orders the slot as a heap, so that its minimum is known from now on.
    pub(super) fn make_heap(&mut self, slot: &mut Slot) {
        if slot.head & KIND == HEAP || slot.is_empty() {
            return;
        }
        let mut count = 0;
        self.for_each(*slot, |entries| count += entries.len());
        let mut entries = Vec::with_capacity(count);
        let mut chunk = slot.head;
        while chunk != 0 {
            let view = self.view(chunk);
            entries.extend(view.entries.iter().map(|&entry| Reverse(entry)));
            let next = view.next;
            self.free(chunk);
            chunk = next;
        }
        let heap = BinaryHeap::from(entries);
        let index = match self.free_heaps.pop() {
            Some(index) => {
                self.heaps[index as usize] = heap;
                index
            }
            None => {
                let index = self.heaps.len() as u32;
                assert!(index < MOST, "a wheel holds at most 2^30 - 1 heaps");
                self.heaps.push(heap);
                index
            }
        };
        slot.head = index << 2 | HEAP;
        slot.tail = slot.head;
    }

    #[cold]
    fn heap_to_chain(&mut self, slot: &mut Slot) {
        let index = slot.head >> 2;
        let heap = std::mem::take(&mut self.heaps[index as usize]);
        self.free_heaps.push(index);
        *slot = Slot::default();
        for Reverse(entry) in heap.into_vec() {
            self.push(slot, entry);
        }
    }

    /// Calls `f` with all entries of a slot, some at a time.
    #[inline]
    pub(super) fn for_each(&self, slot: Slot, mut f: impl FnMut(&[Entry])) {
        if slot.head & KIND == HEAP {
            let heap = &self.heaps[(slot.head >> 2) as usize];
            heap.iter().for_each(|&Reverse(entry)| f(&[entry]));
            return;
        }
        let mut chunk = slot.head;
        while chunk != 0 {
            let view = self.view(chunk);
            f(view.entries);
            chunk = view.next;
        }
    }

    /// The entries of the first two chunks.
    #[inline]
    pub(super) fn first_entries(&self, slot: Slot) -> impl Iterator<Item = Entry> {
        let (first, second) = match slot.head & KIND {
            SMALL | BIG => {
                let first = self.view(slot.head);
                let second = match first.next {
                    0 => &[][..],
                    next => self.view(next).entries,
                };
                (first.entries, second)
            }
            _ => (&[][..], &[][..]),
        };
        first.iter().chain(second).copied()
    }

    /// Checks I4 and I5 against all slots there are.
    pub(super) fn validate(&self, slots: impl Iterator<Item = Slot>) {
        let (mut small, mut big, mut heaps) = (0, 0, 0);
        for slot in slots {
            assert_eq!(slot.head == 0, slot.tail == 0, "I5: half a slot");
            if slot.head & KIND == HEAP {
                assert_eq!(slot.head, slot.tail, "I5: a heap has one reference");
                let heap = &self.heaps[(slot.head >> 2) as usize];
                assert!(!heap.is_empty(), "I5: an empty heap");
                heaps += 1;
                continue;
            }
            let mut chunk = slot.head;
            while chunk != 0 {
                match chunk & KIND {
                    SMALL => small += 1,
                    BIG => big += 1,
                    kind => panic!("I5: a chain with a reference of kind {kind}"),
                }
                let view = self.view(chunk);
                assert!(!view.entries.is_empty(), "I5: an empty chunk");
                if view.next == 0 {
                    assert_eq!(chunk, slot.tail, "I5: the tail is the last chunk");
                }
                chunk = view.next;
            }
        }
        let fresh = (self.small.fresh as usize, self.big.fresh as usize);
        assert_eq!(
            fresh.0,
            small + self.small.free_chunks(),
            "I4: small chunks"
        );
        assert_eq!(fresh.1, big + self.big.free_chunks(), "I4: big chunks");
        assert_eq!(
            self.heaps.len(),
            heaps + self.free_heaps.len(),
            "I4: heaps in use or free"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(chains: &Chains, slot: Slot) -> Vec<Entry> {
        let mut all = Vec::new();
        chains.for_each(slot, |entries| all.extend_from_slice(entries));
        all
    }

    #[test]
    fn chunks_are_cache_lines() {
        assert_eq!(size_of::<Chunk<SMALL_ENTRIES>>(), 64);
        assert_eq!(size_of::<Chunk<BIG_ENTRIES>>(), 256);
        assert_eq!(size_of::<Slot>(), 8);
    }

    #[test]
    fn keeps_the_order_of_filing() {
        let mut chains = Chains::new();
        let mut slot = Slot::default();
        for i in 0..100 {
            assert_eq!(chains.push(&mut slot, i), i == 0);
        }
        assert!(entries(&chains, slot).into_iter().eq(0..100));
        for i in 0..20 {
            assert_eq!(chains.front(slot), Some(i));
            chains.pop_front(&mut slot);
            chains.validate([slot].into_iter());
        }
        assert!(entries(&chains, slot).into_iter().eq(20..100));
        for _ in 20..100 {
            chains.pop_front(&mut slot);
        }
        assert!(slot.is_empty());
        chains.validate([slot].into_iter());
    }

    #[test]
    fn a_heap_gives_the_least_and_becomes_a_chain_again() {
        let mut chains = Chains::new();
        let mut slot = Slot::default();
        for i in 0..50 {
            chains.push(&mut slot, (i * 7) % 50);
        }
        chains.make_heap(&mut slot);
        assert!(!chains.push(&mut slot, 50));
        for i in 0..10 {
            assert_eq!(chains.front(slot), Some(i));
            chains.pop_front(&mut slot);
        }
        chains.validate([slot].into_iter());
        let mut buffer = [0; BIG_ENTRIES];
        let mut all = Vec::new();
        loop {
            let range = chains.take_chunk(&mut slot, &mut buffer);
            if range.is_empty() {
                break;
            }
            all.extend_from_slice(&buffer[range]);
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(10..=50));
        chains.validate([slot].into_iter());
    }
}
