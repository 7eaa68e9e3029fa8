//! From key to node: a hash table that keeps 32 bits of each hash beside the node's number, so
//! that it grows and rejects without touching a node.

use hashbrown::HashTable;

#[derive(Debug, Clone, Copy)]
struct Bucket {
    hash: u32,
    node: u32,
}

/// Where each key's timer lives in the shard's wheel. The keys themselves are in the nodes.
#[derive(Debug, Default)]
pub(crate) struct Index {
    table: HashTable<Bucket>,
}

impl Index {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// A node whose key has this hash, most likely the one; the bucket's line is loaded by this.
    #[inline]
    pub(crate) fn candidate(&self, hash: u32) -> Option<u32> {
        self.table
            .find(spread(hash), |bucket| bucket.hash == hash)
            .map(|bucket| bucket.node)
    }

    /// The node with this hash that `is_key` accepts.
    #[inline]
    pub(crate) fn find(&self, hash: u32, mut is_key: impl FnMut(u32) -> bool) -> Option<u32> {
        self.table
            .find(spread(hash), |bucket| {
                bucket.hash == hash && is_key(bucket.node)
            })
            .map(|bucket| bucket.node)
    }

    /// Adds a key that is not there.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u32, node: u32) {
        self.table
            .insert_unique(spread(hash), Bucket { hash, node }, |b| spread(b.hash));
    }

    /// Takes out the node with this hash that `is_key` accepts.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u32, mut is_key: impl FnMut(u32) -> bool) -> Option<u32> {
        self.table
            .find_entry(spread(hash), |bucket| {
                bucket.hash == hash && is_key(bucket.node)
            })
            .ok()
            .map(|entry| entry.remove().0.node)
    }

    /// Takes out a node by its number, with the hash of its key, if that is to be had.
    #[inline]
    pub(crate) fn forget(&mut self, hash: Option<u32>, node: u32) {
        match hash {
            Some(hash) => {
                self.remove(hash, |candidate| candidate == node);
            }
            None => self.forget_slowly(node),
        }
    }

    /// Looks at the whole table.
    #[cold]
    fn forget_slowly(&mut self, node: u32) {
        self.table.retain(|bucket| bucket.node != node);
    }

    pub(crate) fn clear(&mut self) {
        self.table = HashTable::new();
    }

    /// Follows nodes that were moved, and gives back what the table has grown too large.
    pub(crate) fn renumber(&mut self, new_node: &dyn Fn(u32) -> u32) {
        for bucket in &mut self.table {
            bucket.node = new_node(bucket.node);
        }
        self.table.shrink_to(0, |b| spread(b.hash));
    }
}

/// Spreads 32 bits over the 64 that the table looks at: its position comes from the low ones, its
/// tag from the top seven (the multiplier is the golden ratio's, as in Fibonacci hashing).
#[inline]
fn spread(hash: u32) -> u64 {
    let wide = u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    wide ^ (wide >> 32)
}
