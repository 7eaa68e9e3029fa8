//! A naive model of the keyed wheel: a map of deadlines, searched from end to end.

use std::collections::{BTreeMap, VecDeque};

use wheelhouse_wheel::Stats;

use super::program::{Answer, Config, Event, KEYS, Op, Script, Span};

const NEVER: u64 = u64::MAX;

struct Entry {
    tick: u64,
    /// When it was last set or moved.
    touch: u64,
    id: u32,
    script: Script,
}

/// How often each thing happened.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    set: u64,
    pending: u64,
    fired: u64,
    removed: u64,
    moved: u64,
    replaced: u64,
    drained: u64,
    panicked: u64,
}

impl Tally {
    pub(crate) fn of(stats: &Stats) -> Self {
        assert_eq!((stats.returned, stats.dropped), (0, 0));
        Tally {
            set: stats.set,
            pending: stats.pending,
            fired: stats.fired,
            removed: stats.removed,
            moved: stats.moved,
            replaced: stats.replaced,
            drained: stats.drained,
            panicked: stats.panicked,
        }
    }
}

/// What the wheel is to do, and what it was seen to do where more is allowed than one thing.
pub(crate) struct Model {
    config: Config,
    /// Whether it is the wheel without a thread: pairs are taken out one by one, and nobody but
    /// the caller empties the channel.
    manual: bool,
    pub(crate) now: u128,
    entries: BTreeMap<u8, Entry>,
    touches: u64,
    ids: u32,
    tally: Tally,
    /// Commands in the channels, at most; exactly so where `exact_channel`.
    queued: usize,
    /// Taken out at their tick, callback not begun.
    begun_not: usize,
}

impl Model {
    pub(crate) fn new(config: &Config, manual: bool) -> Self {
        Model {
            config: config.clone(),
            manual,
            now: 0,
            entries: BTreeMap::new(),
            touches: 0,
            ids: 0,
            tally: Tally::default(),
            queued: 0,
            begun_not: 0,
        }
    }

    fn exact_channel(&self) -> bool {
        self.manual && self.config.max_pending.is_none()
    }

    /// The first tick that is after now and not before now and the delay.
    fn tick(&self, delay: Span) -> u64 {
        let interval = self.config.interval.as_nanos();
        let due = self.now + delay.of(self.config.interval).as_nanos();
        let tick = (self.now / interval + 1).max(due.div_ceil(interval));
        u64::try_from(tick).unwrap_or(NEVER)
    }

    pub(crate) fn at(&self, tick: u64) -> Option<u128> {
        (tick != NEVER).then(|| u128::from(tick) * self.config.interval.as_nanos())
    }

    /// How many timers are pending.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally {
            pending: self.entries.len() as u64,
            ..self.tally.clone()
        }
    }

    fn touch(&mut self) -> u64 {
        self.touches += 1;
        self.touches
    }

    /// A command went into a channel, or was applied with those before it.
    fn sent(&mut self) {
        if self.queued < self.config.channel {
            self.queued += 1;
        } else if self.exact_channel() {
            self.queued = 0;
        }
    }

    /// A call that applied the channel of one key.
    fn applied_one(&mut self) {
        if self.manual || self.config.shards == 1 {
            self.queued = 0;
        }
    }

    /// Whether a `try_` form is refused, which the model knows only where nobody else empties the
    /// channel.
    fn busy(&mut self, answer: &Answer) -> bool {
        let busy = *answer == Answer::Busy;
        let may_be = self.queued >= self.config.channel;
        assert!(!busy || may_be, "busy, but the channel has room");
        assert!(
            busy || !may_be || !self.exact_channel(),
            "a full channel took a command"
        );
        busy
    }

    /// The answer counts only where more than one is right.
    fn put(
        &mut self,
        key: u8,
        delay: Span,
        script: &Script,
        answer: &Answer,
    ) -> Result<Option<u32>, ()> {
        let id = self.ids;
        self.ids += 1;
        let max = self.config.max_pending.unwrap_or(usize::MAX);
        // The driver may count a batch as begun when it begins with the first of it.
        let (live, due) = (self.entries.len(), self.begun_not);
        let full = live >= max || (live + due >= max && *answer == Answer::Full);
        if full && !self.entries.contains_key(&key) {
            return Err(());
        }
        let entry = Entry {
            tick: self.tick(delay),
            touch: self.touch(),
            id,
            script: script.clone(),
        };
        self.tally.set += 1;
        let old = self.entries.insert(key, entry);
        self.tally.replaced += u64::from(old.is_some());
        Ok(old.map(|old| old.id))
    }

    fn shift(&mut self, key: u8, delay: Span) -> bool {
        let (tick, touch) = (self.tick(delay), self.touch());
        let Some(entry) = self.entries.get_mut(&key) else {
            return false;
        };
        (entry.tick, entry.touch) = (tick, touch);
        self.tally.moved += 1;
        true
    }

    fn remove(&mut self, key: u8) -> Option<u32> {
        let entry = self.entries.remove(&key)?;
        self.tally.removed += 1;
        Some(entry.id)
    }

    /// Everything in firing order.
    pub(crate) fn in_order(&self) -> Vec<(u8, u32)> {
        let mut all: Vec<_> = self.entries.iter().collect();
        all.sort_by_key(|(_, entry)| (entry.tick, entry.touch));
        all.into_iter()
            .map(|(key, entry)| (*key, entry.id))
            .collect()
    }

    /// Whether `pairs` is everything, in an order that is promised.
    pub(crate) fn is_everything(&self, pairs: &[(u8, u32)]) -> bool {
        let expected = self.in_order();
        if self.manual || self.config.shards == 1 {
            return pairs == expected;
        }
        let ticks = |pairs: &[(u8, u32)]| -> Vec<Option<u64>> {
            let tick = |pair: &(u8, u32)| Some(self.entries.get(&pair.0)?.tick);
            pairs.iter().map(tick).collect()
        };
        let sorted = |pairs: &[(u8, u32)]| {
            let mut pairs = pairs.to_vec();
            pairs.sort_unstable();
            pairs
        };
        ticks(pairs) == ticks(&expected) && sorted(pairs) == sorted(&expected)
    }

    /// Does what the wheel did, and says what it had to answer.
    pub(crate) fn call(&mut self, op: &Op, answer: &Answer) -> Answer {
        match op {
            Op::Set(key, delay, script) => match self.put(*key, *delay, script, answer) {
                Ok(_) => {
                    self.sent();
                    Answer::Done
                }
                Err(()) => Answer::Full,
            },
            Op::TrySet(key, delay, script) => {
                if self.busy(answer) {
                    self.ids += 1;
                    return Answer::Busy;
                }
                match self.put(*key, *delay, script, answer) {
                    Ok(_) => {
                        self.sent();
                        Answer::Done
                    }
                    Err(()) => Answer::Full,
                }
            }
            Op::Replace(key, delay, script) => {
                self.applied_one();
                match self.put(*key, *delay, script, answer) {
                    Ok(old) => Answer::Value(old),
                    Err(()) => Answer::Full,
                }
            }
            Op::Move(key, delay) => {
                self.shift(*key, *delay);
                self.sent();
                Answer::Done
            }
            Op::TryMove(key, delay) => {
                if self.busy(answer) {
                    return Answer::Busy;
                }
                self.shift(*key, *delay);
                self.sent();
                Answer::Done
            }
            Op::Reschedule(key, delay) => {
                self.applied_one();
                Answer::Was(self.shift(*key, *delay))
            }
            Op::Remove(key) => {
                self.remove(*key);
                self.sent();
                Answer::Done
            }
            Op::TryRemove(key) => {
                if self.busy(answer) {
                    return Answer::Busy;
                }
                self.remove(*key);
                self.sent();
                Answer::Done
            }
            Op::Take(key) => {
                self.applied_one();
                Answer::Value(self.remove(*key))
            }
            Op::Drain => {
                self.queued = 0;
                let expected = self.in_order();
                let Answer::Pairs(pairs) = answer else {
                    return Answer::Pairs(expected);
                };
                let right = self.is_everything(pairs);
                self.tally.drained += self.entries.len() as u64;
                self.entries.clear();
                Answer::Pairs(if right { pairs.clone() } else { expected })
            }
            Op::Contains(key) => {
                self.applied_one();
                Answer::Was(self.entries.contains_key(key))
            }
            Op::Deadline(key) => {
                self.applied_one();
                Answer::At(self.entries.get(key).and_then(|entry| self.at(entry.tick)))
            }
            Op::NextDeadline => {
                self.queued = 0;
                Answer::At(self.next_tick().and_then(|tick| self.at(tick)))
            }
            Op::Len => {
                self.queued = 0;
                Answer::Count(self.entries.len())
            }
            Op::Flush => {
                self.queued = 0;
                Answer::Done
            }
            Op::Advance(_) | Op::RunFor(_) => unreachable!("time moves by `fire_until`"),
        }
    }

    pub(crate) fn next_tick(&self) -> Option<u64> {
        self.entries.values().map(|entry| entry.tick).min()
    }

    /// Jumps to `now` and follows what the callbacks did.
    pub(crate) fn fire_until(&mut self, now: u128, log: &mut VecDeque<Event>) -> usize {
        self.now = now;
        self.queued = 0;
        let mut fired = 0;
        while let Some(tick) = self.next_tick()
            && self.at(tick).is_some_and(|at| at <= now)
        {
            let mut due: Vec<u8> = (0..KEYS)
                .filter(|key| {
                    self.entries
                        .get(key)
                        .is_some_and(|entry| entry.tick == tick)
                })
                .collect();
            due.sort_by_key(|key| self.entries[key].touch);
            if self.manual {
                due.truncate(1);
            }
            let mut batch: Vec<(u8, Entry)> = due
                .into_iter()
                .map(|key| (key, self.entries.remove(&key).expect("it is due")))
                .collect();
            while !batch.is_empty() {
                let Some(Event::Fired(key, id)) = log.pop_front() else {
                    panic!("tick {tick}: {:?} did not fire", batch[0].0);
                };
                let place = batch
                    .iter()
                    .position(|(due, entry)| (*due, entry.id) == (key, id))
                    .unwrap_or_else(|| panic!("tick {tick}: {key} ({id}) is not due"));
                let in_order = self.manual || self.config.shards == 1;
                assert!(place == 0 || !in_order, "tick {tick}: {key} fired too soon");
                let (_, entry) = batch.remove(place);
                self.begun_not = batch.len();
                self.tally.fired += 1;
                fired += 1;
                self.follow(&entry.script, log);
                if self.manual {
                    // The next pair is taken out after what this callback sent.
                    self.queued = 0;
                }
            }
        }
        self.queued = 0;
        fired
    }

    fn follow(&mut self, script: &Script, log: &mut VecDeque<Event>) {
        for op in &*script.ops {
            let Some(Event::Answered(done, answer)) = log.pop_front() else {
                panic!("the callback did not do {op:?}");
            };
            let expected = self.call(op, &answer);
            assert_eq!(answer, expected, "in a callback: {done:?}");
        }
        self.tally.panicked += u64::from(script.panics);
    }
}
