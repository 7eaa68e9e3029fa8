//! The table against naive models, step by step.
//!
//! Properties: the same keys, values and weights as a map; the victims of the strict policies as a
//! plain queue names them; what is reaped is what has expired; the invariants after each step.

use std::collections::{BTreeMap, VecDeque};

use foldhash::fast::FixedState;
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    Set { key: u8, lifetime: u16, weight: u8 },
    Get { key: u8 },
    Remove { key: u8 },
    Advance { by: u16 },
    Reap { most: u8 },
    Retune { setting: u8 },
    Drain,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (any::<u8>(), any::<u16>(), 0..4_u8)
            .prop_map(|(key, lifetime, weight)| Op::Set { key, lifetime, weight }),
        6 => any::<u8>().prop_map(|key| Op::Get { key }),
        2 => any::<u8>().prop_map(|key| Op::Remove { key }),
        2 => any::<u16>().prop_map(|by| Op::Advance { by }),
        1 => any::<u8>().prop_map(|most| Op::Reap { most }),
        1 => (0..3_u8).prop_map(|setting| Op::Retune { setting }),
    ];
    let op = prop_oneof![200 => op, 1 => Just(Op::Drain)];
    proptest::collection::vec(op, 1..600)
}

/// What the map says of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    value: u32,
    deadline: Micros,
    weight: u32,
}

impl<V> Shard<u8, V, FixedState> {
    fn hash(&self, key: u8) -> u64 {
        self.hasher.hash_one(key)
    }

    fn validate(&self) {
        let len = self.entries.len();
        let positions = self
            .index
            .validate(|position| self.hash(self.entries[position].key));
        assert!(positions.into_iter().eq(0..len), "S1 and X1");
        if let Some(list) = &self.list {
            let mut positions = list.validate();
            positions.sort_unstable();
            assert!(positions.into_iter().eq(0..len), "S1");
        }
        assert!(
            self.weights.as_ref().is_none_or(|one| one.len() == len),
            "S2"
        );
        assert!(self.hard.as_ref().is_none_or(|one| one.len() == len), "S2");
        if let Some(deadlines) = &self.deadlines {
            let earliest: Vec<Micros> = self
                .entries
                .chunks(BLOCK)
                .map(|block| block.iter().map(Entry::deadline).min().unwrap_or(NEVER))
                .collect();
            deadlines.validate(&earliest);
        }
    }
}

fn run(policy: Policy, capacity: usize, ops: Vec<Op>) {
    let columns = Columns {
        weights: true,
        hard: true,
    };
    let extent = Extent {
        most: capacity,
        likely: capacity,
    };
    let mut shard = Shard::new(policy, columns, extent, FixedState::with_seed(3));
    let mut map: BTreeMap<u8, Known> = BTreeMap::new();
    // From the oldest to the newest, with whether it was visited.
    let mut queue: VecDeque<(u8, bool)> = VecDeque::new();
    let mut now = 0;
    for (value, op) in (0..).zip(ops) {
        match op {
            Op::Set {
                key,
                lifetime,
                weight,
            } => {
                // Some never expire.
                let deadline = match lifetime {
                    0..1_000 => NEVER,
                    _ => now + u64::from(lifetime) * 16,
                };
                // No weight of zero: `victim` is held to the queue here.
                let weight = u32::from(weight) + 1;
                let extra = Extra {
                    weight,
                    hard: deadline,
                };
                let known = Known {
                    value,
                    deadline,
                    weight,
                };
                let hash = shard.hash(key);
                if let Some(position) = shard.find(hash, |other| *other == key) {
                    let before = map.insert(key, known).unwrap();
                    let old = shard.update(position, value, deadline, extra);
                    assert_eq!(old, (before.value, before.weight));
                    shard.hit(position);
                    touch(policy, &mut queue, key);
                } else if map.len() < capacity {
                    shard.push(hash, key, value, deadline, extra);
                    map.insert(key, known);
                    queue.push_back((key, false));
                } else {
                    let victim = shard.victim().unwrap();
                    let gone = shard.replace(victim, hash, key, value, deadline, extra);
                    let before = map.remove(&gone.entry.key).unwrap();
                    assert_eq!(
                        (gone.entry.value, gone.weight),
                        (before.value, before.weight)
                    );
                    take_out(policy, &mut queue, gone.entry.key);
                    map.insert(key, known);
                    queue.push_back((key, false));
                }
            }
            Op::Get { key } => {
                let hash = shard.hash(key);
                match shard.find(hash, |other| *other == key) {
                    Some(position) => {
                        let entry = shard.entry(position);
                        let found = Known {
                            value: entry.value,
                            deadline: entry.deadline(),
                            weight: shard.weight(position),
                        };
                        assert_eq!(Some(&found), map.get(&key));
                        assert_eq!(shard.hard(position), found.deadline);
                        shard.hit(position);
                        touch(policy, &mut queue, key);
                    }
                    None => {
                        assert!(!map.contains_key(&key));
                        shard.miss(hash);
                    }
                }
            }
            Op::Remove { key } => {
                let found = shard.find(shard.hash(key), |other| *other == key);
                assert_eq!(found.is_some(), map.contains_key(&key));
                if let Some(position) = found {
                    let gone = shard.remove(position);
                    assert_eq!(
                        Some(gone.entry.value),
                        map.remove(&key).map(|one| one.value)
                    );
                    queue.retain(|(other, _)| *other != key);
                }
            }
            Op::Advance { by } => now += u64::from(by) * 16,
            Op::Reap { most } => {
                let most = usize::from(most);
                let due = map.values().filter(|one| one.deadline <= now).count();
                let mut reaped = Vec::new();
                let more = shard.reap(now, most, |gone| reaped.push(gone.entry));
                for entry in &reaped {
                    let known = map.remove(&entry.key).unwrap();
                    assert!(known.deadline <= now, "never early");
                    queue.retain(|(other, _)| *other != entry.key);
                }
                assert!(reaped.len() <= most);
                assert!(!more || reaped.len() == most);
                // The wheel is at most a tick behind.
                let sure = now.saturating_sub(3_000);
                let overdue = map.values().filter(|one| one.deadline <= sure).count();
                assert!(more || overdue == 0, "{overdue} of {due} are overdue");
            }
            Op::Retune { setting } => shard.set(SETTINGS[usize::from(setting)]),
            Op::Drain => {
                let mut gone = shard.drain();
                gone.sort_unstable_by_key(|one| one.entry.key);
                let gone = gone.iter().map(|one| (one.entry.key, one.entry.value));
                let known = map.iter().map(|(key, known)| (*key, known.value));
                assert!(gone.eq(known));
                map.clear();
                queue.clear();
            }
        }
        assert_eq!(shard.len(), map.len());
        shard.validate();
    }
}

fn touch(policy: Policy, queue: &mut VecDeque<(u8, bool)>, key: u8) {
    let at = queue.iter().position(|(other, _)| *other == key).unwrap();
    match policy {
        Policy::Lru => {
            let one = queue.remove(at).unwrap();
            queue.push_back(one);
        }
        Policy::Sieve => queue[at].1 = true,
        _ => {}
    }
}

/// Takes the victim out of the queue, where the policy says exactly who it is.
fn take_out(policy: Policy, queue: &mut VecDeque<(u8, bool)>, victim: u8) {
    if matches!(policy, Policy::Lru | Policy::Fifo) {
        assert_eq!(queue.front().map(|one| one.0), Some(victim));
    }
    queue.retain(|(other, _)| *other != victim);
}

proptest! {
    #[test]
    fn the_default_agrees_with_a_map(capacity in 1..100_usize, ops in ops()) {
        run(Policy::Adaptive, capacity, ops);
    }

    #[test]
    fn lru_agrees_with_a_queue(capacity in 1..100_usize, ops in ops()) {
        run(Policy::Lru, capacity, ops);
    }

    #[test]
    fn fifo_agrees_with_a_queue(capacity in 1..100_usize, ops in ops()) {
        run(Policy::Fifo, capacity, ops);
    }

    #[test]
    fn sieve_agrees_with_a_map(capacity in 1..100_usize, ops in ops()) {
        run(Policy::Sieve, capacity, ops);
    }
}

/// SIEVE's own example: the hand spares what was visited, once, and goes on from where it was.
#[test]
fn sieve_takes_the_first_that_was_not_visited() {
    let columns = Columns::default();
    let extent = Extent { most: 4, likely: 4 };
    let mut shard = Shard::new(Policy::Sieve, columns, extent, FixedState::with_seed(3));
    let extra = Extra {
        weight: 1,
        hard: NEVER,
    };
    for key in [b'a', b'b', b'c', b'd'] {
        let hash = shard.hash(key);
        shard.push(hash, key, (), NEVER, extra);
    }
    for key in [b'a', b'c'] {
        let position = shard.find(shard.hash(key), |other| *other == key).unwrap();
        shard.hit(position);
    }
    let mut victims = Vec::new();
    for key in [b'e', b'f', b'g', b'h'] {
        let victim = shard.victim().unwrap();
        let hash = shard.hash(key);
        let gone = shard.replace(victim, hash, key, (), NEVER, extra);
        victims.push(gone.entry.key);
    }
    // a is spared, b goes, c is spared, d goes, then e and f, which came behind the hand.
    assert_eq!(victims, [b'b', b'd', b'e', b'f']);
}

/// What a hit touches of the table itself, and the lock and the count before it: one cache line.
#[test]
fn a_hit_needs_one_line_besides_bucket_and_entry() {
    let before = size_of::<u64>() + size_of::<u64>();
    let pulse = std::mem::offset_of!(Shard<u64, u64, FixedState>, pulse);
    assert_eq!(before + pulse + size_of::<Pulse>(), 64);
}
