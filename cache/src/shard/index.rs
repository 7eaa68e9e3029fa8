//! Where the entry of a key is: buckets of twelve tags and positions that share a cache line.
//!
//! # Invariants
//! - X1: each position of the table is in exactly one lane, within the run of buckets that begins at
//!   its hash's home and that has no bucket with a count of zero before it.
//! - X2: `passed` of a bucket is the number of positions whose home is at or before it and whose lane
//!   is after it: a search ends at the first bucket that nobody passed.

const LANES: usize = 12;

/// Entries per bucket that make the index grow: at two thirds, six in a hundred buckets overflow.
const FULL: usize = 8;

/// The lowest bit of each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Tag of a lane that is not in use.
const VACANT: u8 = 0;

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u8; LANES],
    passed: u32,
    positions: [u32; LANES],
}

const EMPTY: Bucket = Bucket {
    tags: [VACANT; LANES],
    passed: 0,
    positions: [0; LANES],
};

#[derive(Debug)]
pub(super) struct Index {
    buckets: Box<[Bucket]>,
}

/// A lane in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane {
    bucket: u32,
    lane: u8,
}

impl Index {
    /// An index for up to eight entries.
    pub(super) fn new() -> Self {
        Index {
            buckets: Box::new([EMPTY]),
        }
    }

    /// Whether one more than `len` entries would be too many for the buckets there are.
    #[inline]
    pub(super) fn is_full(&self, len: usize) -> bool {
        len >= self.room()
    }

    /// Makes room for `entries`, more than there was room for, and empties the index: the caller adds
    /// the entries again.
    pub(super) fn grow(&mut self, entries: usize) {
        // The old buckets go first: never are both there.
        self.buckets = Box::default();
        self.buckets = vec![EMPTY; entries.div_ceil(FULL)].into_boxed_slice();
    }

    /// Entries for which there is room.
    pub(super) fn room(&self) -> usize {
        self.buckets.len() * FULL
    }

    /// Empties the index and gives its memory back.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// The position that `is_it` accepts among those with the tag of `hash`. It may be asked of others,
    /// also of such as are not in the table any more.
    #[inline(always)]
    pub(super) fn find_position(
        &self,
        hash: u64,
        mut is_it: impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        // Nearly all are in the first bucket: it is not looked at in a loop.
        let bucket = &self.buckets[self.home(hash)];
        let mut lanes = bucket.with_tag_or_so(tag(hash));
        while lanes != 0 {
            let position = bucket.positions[first_of(lanes)] as usize;
            if is_it(position) {
                return Some(position);
            }
            lanes &= lanes - 1;
        }
        if bucket.passed == 0 {
            return None;
        }
        self.find_further(hash, &mut is_it)
    }

    #[inline(never)]
    fn find_further(&self, hash: u64, is_it: &mut dyn FnMut(usize) -> bool) -> Option<usize> {
        Some(self.find(hash, is_it)?.0)
    }

    /// The position that `is_it` accepts among those with the tag of `hash`, and its lane.
    #[inline]
    pub(super) fn find(
        &self,
        hash: u64,
        mut is_it: impl FnMut(usize) -> bool,
    ) -> Option<(usize, Lane)> {
        let tag = tag(hash);
        let mut at = self.home(hash);
        let mut left = self.buckets.len();
        loop {
            let bucket = &self.buckets[at];
            let mut lanes = bucket.with_tag(tag);
            while lanes != 0 {
                let lane = first_of(lanes);
                let position = bucket.positions[lane] as usize;
                if is_it(position) {
                    let lane = Lane {
                        bucket: at as u32,
                        lane: lane as u8,
                    };
                    return Some((position, lane));
                }
                lanes &= lanes - 1;
            }
            // All may have been passed, each by another one.
            left -= 1;
            if bucket.passed == 0 || left == 0 {
                return None;
            }
            at = self.next(at);
        }
    }

    /// Adds a position that is not there yet. Not to be called when [full](Self::is_full).
    #[inline]
    pub(super) fn insert(&mut self, hash: u64, position: usize) {
        let mut at = self.home(hash);
        loop {
            let bucket = &mut self.buckets[at];
            let vacant = bucket.with_tag(VACANT);
            if vacant != 0 {
                let lane = first_of(vacant);
                bucket.tags[lane] = tag(hash);
                bucket.positions[lane] = position as u32;
                return;
            }
            bucket.passed += 1;
            at = self.next(at);
        }
    }

    /// Takes out what [`find`](Self::find) found for `hash`.
    #[inline]
    pub(super) fn remove(&mut self, hash: u64, found: Lane) {
        let mut at = self.home(hash);
        while at != found.bucket as usize {
            self.buckets[at].passed -= 1;
            at = self.next(at);
        }
        self.buckets[at].tags[usize::from(found.lane)] = VACANT;
    }

    /// Writes down that what was found is at another position now.
    #[inline]
    pub(super) fn set_position(&mut self, found: Lane, position: usize) {
        self.buckets[found.bucket as usize].positions[usize::from(found.lane)] = position as u32;
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        // The lowest byte is the tag, the highest bits have chosen the shard.
        let spread = u64::from((hash >> 8) as u32);
        ((spread * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.buckets.len() {
            0
        } else {
            at + 1
        }
    }

    /// The positions in all lanes, and X2.
    #[cfg(test)]
    pub(super) fn validate(&self, home_hash: impl Fn(usize) -> u64) -> Vec<usize> {
        let mut passed = vec![0_u32; self.buckets.len()];
        let mut positions = Vec::new();
        for (at, bucket) in self.buckets.iter().enumerate() {
            for (lane, &position) in bucket.positions.iter().enumerate() {
                if bucket.tags[lane] == VACANT {
                    continue;
                }
                let hash = home_hash(position as usize);
                assert_eq!(bucket.tags[lane], tag(hash));
                let mut on_the_way = self.home(hash);
                while on_the_way != at {
                    passed[on_the_way] += 1;
                    on_the_way = self.next(on_the_way);
                }
                positions.push(position as usize);
            }
        }
        let counted: Vec<u32> = self.buckets.iter().map(|bucket| bucket.passed).collect();
        assert_eq!(counted, passed, "X2");
        positions.sort_unstable();
        positions
    }
}

impl Bucket {
    /// The lanes with this tag, as [`first_of`] reads them.
    #[inline]
    fn with_tag(&self, tag: u8) -> u64 {
        const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
        let [low, high] = self.differences(tag);
        // The highest bit of each byte that is zero.
        let zeros = |bytes: u64| !(((bytes & LOW) + LOW) | bytes | LOW);
        zeros(low) >> 7 | (zeros(high) & 0xffff_ffff) >> 3
    }

    /// The same in half the instructions, but lanes whose tag differs in the lowest bit may be among
    /// them, also vacant ones.
    #[inline]
    fn with_tag_or_so(&self, tag: u8) -> u64 {
        let [low, high] = self.differences(tag);
        // The highest bit of the first byte that is zero, and perhaps of ones after it.
        let zeros = |bytes: u64| bytes.wrapping_sub(ONES) & !bytes & (ONES << 7);
        zeros(low) >> 7 | (zeros(high) & 0xffff_ffff) >> 3
    }

    /// The tags and this one, exclusive or; what follows the twelve is anything.
    #[inline]
    fn differences(&self, tag: u8) -> [u64; 2] {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = self.tags;
        let [m, n, o, p] = self.passed.to_le_bytes();
        [[a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p]]
            .map(|bytes| u64::from_le_bytes(bytes) ^ (ONES * u64::from(tag)))
    }
}

/// The lowest of the bits 8 n, for lane n up to 7, and 8 n + 4, for lane n + 8.
#[inline]
fn first_of(lanes: u64) -> usize {
    let bit = lanes.trailing_zeros() as usize;
    bit / 8 + (bit & 4) * 2
}

#[inline]
fn tag(hash: u64) -> u8 {
    (hash as u8).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_one_line() {
        assert_eq!((size_of::<Bucket>(), align_of::<Bucket>()), (64, 64));
    }

    #[test]
    fn lanes_are_told_apart_by_their_whole_tag() {
        let mut bucket = EMPTY;
        bucket.tags = [0, 1, 2, 0x80, 0x81, 0xff, 1, 0, 0x7f, 1, 0xfe, 0x80];
        let lanes = |tag| {
            let mut lanes = bucket.with_tag(tag);
            let mut found = Vec::new();
            while lanes != 0 {
                found.push(first_of(lanes));
                lanes &= lanes - 1;
            }
            found.sort_unstable();
            found
        };
        assert_eq!(lanes(0), [0, 7]);
        assert_eq!(lanes(1), [1, 6, 9]);
        assert_eq!(lanes(0x80), [3, 11]);
        assert_eq!(lanes(0xff), [5]);
        assert_eq!(lanes(0x33), [0_usize; 0]);
    }

    #[test]
    fn overflow_is_found_and_forgotten() {
        let mut index = Index::new();
        index.grow(32);
        // All of one home and tag: buckets overflow, also around the end.
        let hash = u64::MAX;
        for position in 0..30 {
            index.insert(hash, position);
        }
        assert_eq!(index.validate(|_| hash).len(), 30);
        for position in (0..30).rev() {
            let (_, lane) = index.find(hash, |at| at == position).unwrap();
            index.remove(hash, lane);
            assert!(index.find(hash, |at| at == position).is_none());
        }
        assert!(index.buckets.iter().all(|bucket| bucket.passed == 0));
    }
}
