//! The last `n` outcomes, two bits each, with their sums. Used under a lock.

use super::bucket::Outcomes;

/// Outcomes in a row: bit `i` of `errors` and `slow` is of the `i`-th, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) errors: u64,
    pub(super) slow: u64,
    pub(super) len: u32,
}

impl Run {
    /// The newest `len` of them.
    fn newest(self, len: u32) -> Run {
        match self.len - len {
            0 => self,
            gone => Run {
                errors: self.errors >> gone,
                slow: self.slow >> gone,
                len,
            },
        }
    }
}

#[derive(Debug)]
pub(super) struct OutcomesRing {
    errors: Bits,
    slow: Bits,
    size: usize,
    /// Where the next outcome goes.
    next: usize,
    /// Of what is in the ring; `requests` is how many those are.
    sums: Outcomes,
}

impl OutcomesRing {
    pub(super) fn new(size: usize) -> Self {
        OutcomesRing {
            errors: Bits::new(size),
            slow: Bits::new(size),
            size,
            next: 0,
            sums: Outcomes::default(),
        }
    }

    /// Takes in a run of at most 64; what is over the size leaves, oldest first.
    pub(super) fn push(&mut self, run: Run) {
        let run = run.newest(run.len.min(u32::try_from(self.size).unwrap_or(u32::MAX)));
        let len = run.len as usize;
        let leaving = (self.held() + len).saturating_sub(self.size);
        self.sums = self.without_oldest(leaving);
        self.errors.write(self.next, run.errors, len);
        self.slow.write(self.next, run.slow, len);
        self.next = (self.next + len) % self.size;
        self.sums.requests += u64::from(run.len);
        self.sums.errors += u64::from(run.errors.count_ones());
        self.sums.slow += u64::from(run.slow.count_ones());
    }

    fn held(&self) -> usize {
        self.sums.requests as usize
    }

    /// The sums without the oldest `count`, of which there are that many.
    pub(super) fn without_oldest(&self, count: usize) -> Outcomes {
        let oldest = (self.next + self.size - self.held()) % self.size;
        Outcomes {
            requests: self.sums.requests - count as u64,
            errors: self.sums.errors - self.errors.count_ones(oldest, count),
            slow: self.sums.slow - self.slow.count_ones(oldest, count),
        }
    }

    pub(super) fn sums(&self) -> Outcomes {
        self.sums
    }

    /// Whether it is full of plain successes, so that taking in some more would change nothing.
    pub(super) fn is_clean(&self) -> bool {
        self.held() == self.size && self.sums.errors == 0 && self.sums.slow == 0
    }

    pub(super) fn clear(&mut self) {
        self.next = 0;
        self.sums = Outcomes::default();
    }
}

/// A circle of bits.
#[derive(Debug)]
struct Bits {
    words: Box<[u64]>,
    size: usize,
}

/// A part of a [`Bits`] that lies in one word.
struct Piece {
    word: usize,
    shift: u32,
    len: u32,
}

impl Piece {
    fn mask(&self) -> u64 {
        (u64::MAX >> (64 - self.len)) << self.shift
    }
}

impl Bits {
    fn new(size: usize) -> Self {
        Bits {
            words: vec![0; size.div_ceil(64)].into(),
            size,
        }
    }

    /// `len` bits from `start`, in pieces; at most once around.
    fn pieces(&self, mut start: usize, mut len: usize) -> impl Iterator<Item = Piece> + use<> {
        let size = self.size;
        std::iter::from_fn(move || {
            if len == 0 {
                return None;
            }
            let shift = start % 64;
            let taken = len.min(64 - shift).min(size - start);
            let piece = Piece {
                word: start / 64,
                shift: shift as u32,
                len: taken as u32,
            };
            len -= taken;
            start = (start + taken) % size;
            Some(piece)
        })
    }

    fn count_ones(&self, start: usize, len: usize) -> u64 {
        self.pieces(start, len)
            .map(|piece| u64::from((self.words[piece.word] & piece.mask()).count_ones()))
            .sum()
    }

    /// Writes the lowest `len` bits, at most 64.
    fn write(&mut self, start: usize, bits: u64, len: usize) {
        let mut done = 0;
        for piece in self.pieces(start, len) {
            let word = &mut self.words[piece.word];
            *word = *word & !piece.mask() | (bits >> done << piece.shift) & piece.mask();
            done += piece.len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every size and length around the ends of words, against a plain list.
    #[test]
    fn agrees_with_a_plain_list() {
        for size in [1, 2, 7, 8, 9, 63, 64, 65, 100, 128, 130] {
            let mut ring = OutcomesRing::new(size);
            let mut list: Vec<(bool, bool)> = Vec::new();
            let mut random = fastrand::Rng::with_seed(size as u64);
            for _ in 0..500 {
                let len = random.u32(0..=64);
                let mask = u64::MAX.checked_shr(64 - len).unwrap_or(0);
                let (errors, slow) = (random.u64(..) & mask, random.u64(..) & mask);
                ring.push(Run { errors, slow, len });
                list.extend((0..len).map(|bit| (errors >> bit & 1 == 1, slow >> bit & 1 == 1)));
                list.drain(..list.len().saturating_sub(size));

                let dropped = random.usize(0..=list.len());
                let rest = &list[dropped..];
                let expected = Outcomes {
                    requests: rest.len() as u64,
                    errors: rest.iter().filter(|(error, _)| *error).count() as u64,
                    slow: rest.iter().filter(|(_, slow)| *slow).count() as u64,
                };
                assert_eq!(ring.without_oldest(dropped), expected);
            }
            ring.clear();
            assert_eq!(ring.sums(), Outcomes::default());
        }
    }
}
