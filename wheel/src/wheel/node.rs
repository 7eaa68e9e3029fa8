//! Nodes: where timers live.
//!
//! A timer is found by the index of its node alone. A node is 32 bytes for a
//! value of 8, starts on a boundary that keeps it within one cache line, and
//! holds everything that moving a timer to a later deadline has to touch.
//!
//! # Invariants
//! - I1: `live` is the number of nodes that are not vacant.
//! - I2: every vacant node below `fresh` is either retired or once on the free
//!   list; every node from `fresh` on is vacant and of generation 0.
//! - I3: a vacant node holds the generation that its next timer will get, so a
//!   key never matches it by generation unless the generation is used up, and
//!   then not by variant.

use std::mem;

use super::ranks::{Ranks, members};
use super::segments::Segments;

/// Ends the free list.
const NONE: u32 = u32::MAX;

/// Nodes per block. A multiple of eight nodes fills whole cache lines whatever
/// the size of the value, so aligning blocks wastes nothing.
const BLOCK: usize = 8;
const BLOCK_BITS: u32 = 3;

/// Bytes of nodes below which nothing is worth moving.
const SMALL_BYTES: usize = 8 * 1024;

#[derive(Debug)]
#[repr(u32)]
pub(super) enum Node<T> {
    Vacant {
        generation: u32,
        next: u32,
    },
    /// A slot has an entry for this node under the tick `filed` (its low half).
    Filed {
        generation: u32,
        stamp: u32,
        filed: u32,
        deadline: u64,
        value: T,
    },
    /// No slot has an entry for this node: it is in the due list, or it was
    /// set at the last tick there is and never fires.
    Loose {
        generation: u32,
        stamp: u32,
        deadline: u64,
        value: T,
    },
}

impl<T> Node<T> {
    #[inline]
    pub(super) fn generation(&self) -> u32 {
        match self {
            Self::Vacant { generation, .. }
            | Self::Filed { generation, .. }
            | Self::Loose { generation, .. } => *generation,
        }
    }

    #[inline]
    pub(super) fn is_live(&self) -> bool {
        !matches!(self, Self::Vacant { .. })
    }

    #[inline]
    pub(super) fn deadline(&self) -> Option<u64> {
        match self {
            Self::Vacant { .. } => None,
            Self::Filed { deadline, .. } | Self::Loose { deadline, .. } => Some(*deadline),
        }
    }

    #[inline]
    pub(super) fn stamp(&self) -> Option<u32> {
        match self {
            Self::Vacant { .. } => None,
            Self::Filed { stamp, .. } | Self::Loose { stamp, .. } => Some(*stamp),
        }
    }

    /// The low half of the tick that an entry for this node is filed under.
    #[inline]
    pub(super) fn filed(&self) -> Option<u32> {
        match self {
            Self::Filed { filed, .. } => Some(*filed),
            _ => None,
        }
    }

    pub(super) fn set_stamp(&mut self, new: u32) {
        match self {
            Self::Vacant { .. } => {}
            Self::Filed { stamp, .. } | Self::Loose { stamp, .. } => *stamp = new,
        }
    }

    #[inline]
    pub(super) fn value(&self) -> Option<&T> {
        match self {
            Self::Vacant { .. } => None,
            Self::Filed { value, .. } | Self::Loose { value, .. } => Some(value),
        }
    }

    #[inline]
    pub(super) fn value_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Vacant { .. } => None,
            Self::Filed { value, .. } | Self::Loose { value, .. } => Some(value),
        }
    }

    /// Notes the tick that a live node is filed under.
    #[inline]
    pub(super) fn set_filed(&mut self, tick: u64) {
        if let Self::Filed { filed, .. } = self {
            *filed = tick as u32;
        } else {
            self.refile(Some(tick as u32));
        }
    }

    /// Marks a live node as one that no slot refers to any more.
    #[inline]
    pub(super) fn set_loose(&mut self) {
        self.refile(None);
    }

    /// Makes a live node a filed one, or a loose one.
    #[inline]
    fn refile(&mut self, filed: Option<u32>) {
        let (Self::Filed {
            generation,
            stamp,
            deadline,
            value,
            ..
        }
        | Self::Loose {
            generation,
            stamp,
            deadline,
            value,
        }) = mem::replace(self, Self::FRESH)
        else {
            unreachable!("only live nodes are filed")
        };
        *self = match filed {
            Some(filed) => Self::Filed {
                generation,
                stamp,
                filed,
                deadline,
                value,
            },
            None => Self::Loose {
                generation,
                stamp,
                deadline,
                value,
            },
        };
    }

    pub(super) const FRESH: Self = Self::Vacant {
        generation: 0,
        next: NONE,
    };
}

#[derive(Debug)]
#[repr(align(64))]
struct Block<T>([Node<T>; BLOCK]);

/// Where nodes were before they were moved together. The new index of an early
/// one is its rank; the late ones come behind all early ones.
#[derive(Debug)]
pub(super) struct Gathered {
    early: Ranks,
    late: Ranks,
}

impl Gathered {
    /// The new index of a node that was live.
    #[inline]
    pub(super) fn index(&self, old: u32) -> u32 {
        if self.early.contains(old) {
            self.early.rank(old)
        } else {
            self.early.len() + self.late.rank(old)
        }
    }

    /// Whether a node was live.
    pub(super) fn contains(&self, old: u32) -> bool {
        self.late.contains(old) || self.early.contains(old)
    }

    /// A bit for each node there was, set when it was live.
    pub(super) fn live_words(&self) -> Vec<u64> {
        let early = self.early.words().chain(std::iter::repeat(0));
        self.late.words().zip(early).map(|(a, b)| a | b).collect()
    }
}

/// All nodes of a wheel.
#[derive(Debug)]
pub(super) struct Nodes<T> {
    blocks: Segments<Block<T>>,
    free: u32,
    fresh: u32,
    capacity: u32,
    live: usize,
    retired: usize,
    /// Fewer live nodes than this are worth moving together.
    sparse: usize,
}

impl<T> Default for Nodes<T> {
    fn default() -> Self {
        Self {
            blocks: Segments::new(),
            free: NONE,
            fresh: 0,
            capacity: 0,
            live: 0,
            retired: 0,
            sparse: 0,
        }
    }
}

impl<T> Nodes<T> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Nodes ever used: all live ones are below this index.
    #[inline]
    pub(super) fn used(&self) -> u32 {
        self.fresh
    }

    /// Whether less than a quarter of the nodes is live, and it matters.
    #[inline]
    pub(super) fn is_sparse(&self) -> bool {
        self.live < self.sparse
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Node<T>> {
        let block = self.blocks.get((index >> BLOCK_BITS) as usize)?;
        Some(&block.0[index as usize % BLOCK])
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Node<T>> {
        let block = self.blocks.get_mut((index >> BLOCK_BITS) as usize)?;
        Some(&mut block.0[index as usize % BLOCK])
    }

    /// All used nodes with their indices.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Node<T>)> {
        let nodes = self.blocks.iter().flat_map(|block| &block.0);
        (0..self.fresh).zip(nodes)
    }

    /// Moves all live nodes together, under generation 0, and gives the rest of
    /// the memory back. Of the indices below `early`, those of generation 0
    /// come first; otherwise the order stays. Calls `moved` with the old index
    /// and the old generation of each node, in the new order.
    ///
    /// Nodes move within the storage, always to a lower place that is free by
    /// then: new memory would cost more than all the rest.
    pub(super) fn gather(&mut self, early: u32, mut moved: impl FnMut(u32, u32)) -> Gathered {
        let mut gathered = Gathered {
            early: Ranks::with_capacity(early),
            late: Ranks::with_capacity(self.fresh),
        };
        let words = early.div_ceil(64);
        for word in 0..words {
            let (live, first) = self.survey(word, early);
            gathered.early.push(first);
            gathered.late.push(live & !first);
        }
        let between: Vec<(u32, Node<T>)> = gathered
            .late
            .iter()
            .map(|old| (old, mem::replace(&mut self[old], Node::FRESH)))
            .collect();
        let mut next = 0;
        for old in gathered.early.iter() {
            moved(old, 0);
            self.slide(old, next);
            next += 1;
        }
        for (old, node) in between {
            moved(old, node.generation());
            self[next] = node;
            self.slide(next, next);
            next += 1;
        }
        for word in words..self.fresh.div_ceil(64) {
            let (live, _) = self.survey(word, 0);
            gathered.late.push(live);
            for old in members(word, live) {
                moved(old, self[old].generation());
                self.slide(old, next);
                next += 1;
            }
        }
        self.keep(next);
        gathered
    }

    /// A bit for each used node, set when it is live.
    pub(super) fn live_words(&self) -> Vec<u64> {
        let words = 0..self.fresh.div_ceil(64);
        words.map(|word| self.survey(word, 0).0).collect()
    }

    /// Which of 64 nodes are live, and which of these are of generation 0 and
    /// below `early`.
    #[inline]
    fn survey(&self, word: u32, early: u32) -> (u64, u64) {
        const BLOCKS: usize = 64 / BLOCK;
        let (mut live, mut unaged) = (0, 0);
        for i in 0..BLOCKS {
            let Some(block) = self.blocks.get(word as usize * BLOCKS + i) else {
                break;
            };
            // Without a branch, so that the loads run ahead.
            for (j, node) in block.0.iter().enumerate() {
                let bit = i * BLOCK + j;
                live |= u64::from(node.is_live()) << bit;
                unaged |= u64::from(node.generation() == 0) << bit;
            }
        }
        let below = match early.saturating_sub(word * 64) {
            0 => 0,
            left => u64::MAX >> 64u32.saturating_sub(left),
        };
        (live, live & unaged & below)
    }

    /// Moves a live node to the free place `new`, not above `old`.
    #[inline]
    fn slide(&mut self, old: u32, new: u32) {
        let mut node = mem::replace(&mut self[old], Node::FRESH);
        if let Node::Filed { generation, .. } | Node::Loose { generation, .. } = &mut node {
            *generation = 0;
        }
        self[new] = node;
    }

    /// Forgets all nodes but the first `live`, which are all the live ones.
    fn keep(&mut self, live: u32) {
        self.blocks.truncate((live as usize).div_ceil(BLOCK));
        self.free = NONE;
        self.fresh = live;
        self.live = live as usize;
        self.retired = 0;
        self.note_capacity();
        for index in live..self.capacity {
            self[index] = Node::FRESH;
        }
    }

    /// Makes a vacant node live and returns its index and generation.
    ///
    /// # Panics
    /// When 2³² − 1 nodes are in use.
    #[inline]
    pub(super) fn occupy(&mut self, make: impl FnOnce(u32) -> Node<T>) -> (u32, u32) {
        if self.free == NONE {
            self.free = self.freshen();
        }
        let index = self.free;
        let node = &mut self[index];
        let Node::Vacant { generation, next } = *node else {
            unreachable!("I2: the free list holds vacant nodes")
        };
        *node = make(generation);
        self.free = next;
        self.live += 1;
        (index, generation)
    }

    /// Takes a node that was never used.
    #[inline]
    fn freshen(&mut self) -> u32 {
        let index = self.fresh;
        assert!(index != NONE, "a wheel holds at most 2^32 - 1 timers");
        if index >= self.capacity {
            self.grow();
        }
        self.fresh = index + 1;
        index
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.blocks
            .grow(|| Block(std::array::from_fn(|_| Node::FRESH)));
        self.note_capacity();
    }

    fn note_capacity(&mut self) {
        let capacity = self.blocks.capacity() * BLOCK;
        // Indices end before NONE, which `freshen` sees to.
        self.capacity = u32::try_from(capacity).unwrap_or(NONE);
        let matters = capacity * size_of::<Node<T>>() > SMALL_BYTES;
        self.sparse = if matters { capacity / 4 } else { 0 };
    }

    /// Makes a node vacant if it is what the caller wants, a live one, and
    /// returns what it was.
    #[inline]
    pub(super) fn vacate_if(
        &mut self,
        index: u32,
        wanted: impl FnOnce(&Node<T>) -> bool,
    ) -> Option<Node<T>> {
        let next = self.free;
        let node = self.get_mut(index)?;
        if !wanted(node) {
            return None;
        }
        debug_assert!(node.is_live());
        let generation = node.generation();
        let vacant = Node::Vacant {
            generation: generation.wrapping_add(1),
            next,
        };
        let old = mem::replace(node, vacant);
        self.live -= 1;
        if generation == u32::MAX {
            self.retire(index);
        } else {
            self.free = index;
        }
        Some(old)
    }

    /// Keeps a node whose generations are used up from ever being used again.
    #[cold]
    fn retire(&mut self, index: u32) {
        self[index] = Node::Vacant {
            generation: u32::MAX,
            next: NONE,
        };
        self.retired += 1;
    }

    /// Checks I1 and I2.
    pub(super) fn validate(&self) {
        let live = self.iter().filter(|(_, node)| node.is_live()).count();
        assert_eq!(live, self.live, "I1: live nodes counted");
        let mut free = 0;
        let mut next = self.free;
        while next != NONE {
            assert!(next < self.fresh, "I2: node {next} is free and unused");
            let Node::Vacant { next: after, .. } = self[next] else {
                panic!("I2: node {next} is free and live")
            };
            next = after;
            free += 1;
            assert!(free <= self.fresh, "I2: the free list has a loop");
        }
        assert_eq!(
            free as usize + live + self.retired,
            self.fresh as usize,
            "I2: every used node is live, free or retired"
        );
        let unused = self.blocks.iter().flat_map(|block| &block.0);
        for node in unused.skip(self.fresh as usize) {
            assert!(
                matches!(node, Node::Vacant { generation: 0, .. }),
                "I2: an unused node has been used"
            );
        }
    }
}

impl<T> std::ops::Index<u32> for Nodes<T> {
    type Output = Node<T>;

    #[inline]
    fn index(&self, index: u32) -> &Node<T> {
        &self.blocks[(index >> BLOCK_BITS) as usize].0[index as usize % BLOCK]
    }
}

impl<T> std::ops::IndexMut<u32> for Nodes<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Node<T> {
        &mut self.blocks[(index >> BLOCK_BITS) as usize].0[index as usize % BLOCK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filed(generation: u32) -> Node<u64> {
        Node::Filed {
            generation,
            stamp: 0,
            filed: 0,
            deadline: 0,
            value: 0,
        }
    }

    #[test]
    fn a_node_of_eight_bytes_is_half_a_cache_line() {
        assert_eq!(size_of::<Node<u64>>(), 32);
        assert_eq!(size_of::<Block<u64>>(), 256);
        assert_eq!(size_of::<Block<[u64; 2]>>(), 320);
    }

    #[test]
    fn g8_a_node_whose_generations_are_used_up_is_retired() {
        let mut nodes = Nodes::default();
        let (index, generation) = nodes.occupy(filed);
        assert_eq!((index, generation), (0, 0));
        nodes[0] = filed(u32::MAX);
        assert!(nodes.vacate_if(0, Node::is_live).is_some());
        nodes.validate();
        assert_eq!(nodes.occupy(filed), (1, 0), "node 0 is not used again");
        assert!(nodes.vacate_if(1, Node::is_live).is_some());
        assert_eq!(nodes.occupy(filed), (1, 1));
        nodes.validate();
    }
}
