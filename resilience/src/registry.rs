//! [`Registry`]: breakers by name, made when they are first asked for.
//!
//! # Ground rules
//!
//! - A name that is known costs a lookup under the lock of one of the map's shards. Whoever asks for
//!   an unknown one builds its breaker first, and then enters it under the lock `entering`, so that
//!   the bound holds and of several who build one the first wins.
//! - What is the user's runs outside all locks: the clocks, and the hooks of breakers that leave,
//!   which are dropped last.
//! - A breaker that somebody else has a handle on (a call in flight, say) is in use and not idle. The
//!   count of handles is looked at under the lock of its shard, which a handle is taken under too: so
//!   nobody gets one between the look and the removal.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
// Plain ones: nothing here is a hand-shake of its own.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use parking_lot::Mutex;
use wheelhouse_wheel::Clock;

use crate::clock::{TimeSource, nanos};
use crate::contain::{contained, report};
use crate::{Breaker, BreakerBuilder, BreakerStats, BuildError, ThrottleBuilder};

/// Named breakers, made on demand and at most so many.
///
/// Clones share the breakers. A breaker that nobody has asked for or used for a while is forgotten
/// when others come, and made anew, closed, when it is asked for again. When the registry is full, the
/// one unused for longest leaves, those that are closed and not in use first.
///
/// ```
/// use wheelhouse_resilience::{Breaker, Registry};
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let registry = Registry::builder()
///     .configure("payments", Breaker::consecutive())
///     .exempt("health")
///     .build()?;
///
/// registry.get("payments").force_open();
/// assert!(registry.get("payments").try_acquire().is_err());
/// assert!(registry.get("search").try_acquire().is_ok());
/// assert_eq!(registry.len(), 2);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

/// Settings of a [`Registry`], from [`Registry::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it builds"]
pub struct RegistryBuilder {
    default: Recipe,
    recipes: HashMap<Arc<str>, Recipe>,
    exempt: Vec<Arc<str>>,
    max_names: usize,
    idle: Duration,
    time: TimeSource,
}

/// What the breakers of a name are built from: a [`BreakerBuilder`] or a [`ThrottleBuilder`], whose
/// own name does not count.
#[derive(Debug, Clone)]
pub struct Recipe(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Circuit(Box<BreakerBuilder>),
    Throttle(Box<ThrottleBuilder>),
}

/// What a [`Registry`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RegistryStats {
    /// Names at present.
    pub names: usize,
    /// Breakers made since the beginning.
    pub made: u64,
    /// Those that left because they were idle.
    pub idle: u64,
    /// Those that left because others needed their place.
    pub displaced: u64,
}

/// Uses within this part of the idle time are not written down one by one.
const UNWRITTEN: u64 = 64;

struct Shared {
    breakers: DashMap<Arc<str>, Entry>,
    exempt: HashMap<Arc<str>, Breaker>,
    default: Recipe,
    recipes: HashMap<Arc<str>, Recipe>,
    max_names: usize,
    /// Nanoseconds, as all times here.
    idle: u64,
    time: TimeSource,
    entering: Mutex<Entering>,
}

struct Entry {
    breaker: Breaker,
    /// When it was asked for, of which 1/64 of the idle time may be missing.
    used: AtomicU64,
}

/// Only who enters or removes names has it.
#[derive(Default)]
struct Entering {
    next_sweep: u64,
    made: u64,
    idle: u64,
    displaced: u64,
}

impl Registry {
    /// Settings: the [default breaker](Breaker::builder) for all, 1 024 names, idle after 10 minutes.
    pub fn builder() -> RegistryBuilder {
        RegistryBuilder {
            default: Breaker::builder().into(),
            recipes: HashMap::new(),
            exempt: Vec::new(),
            max_names: 1024,
            idle: Duration::from_secs(600),
            time: TimeSource::system(),
        }
    }

    /// The breaker of this name, made if there is none.
    ///
    /// Costs a lookup under a short lock; a name that is new costs a breaker, and now and then a look
    /// at all names.
    ///
    /// ```
    /// use wheelhouse_resilience::Registry;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let registry = Registry::builder().build()?;
    /// registry.get("search").try_acquire().unwrap().success();
    /// assert_eq!(registry.get("search").stats().successes, 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn get(&self, name: &str) -> Breaker {
        let shared = &*self.shared;
        if let Some(breaker) = shared.exempt.get(name) {
            return breaker.clone();
        }
        let now = shared.time.nanos();
        match shared.known(name, now) {
            Some(breaker) => breaker,
            None => shared.enter(name, now),
        }
    }

    /// The breaker of this name, if there is one. Does not count as use.
    ///
    /// ```
    /// use wheelhouse_resilience::Registry;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let registry = Registry::builder().build()?;
    /// assert!(registry.peek("search").is_none());
    /// let _ = registry.get("search");
    /// assert!(registry.peek("search").is_some());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn peek(&self, name: &str) -> Option<Breaker> {
        let shared = &*self.shared;
        shared
            .exempt
            .get(name)
            .cloned()
            .or_else(|| Some(shared.breakers.get(name)?.breaker.clone()))
    }

    /// Forgets this name, and returns whether it was known. Those who have its breaker keep it.
    ///
    /// ```
    /// use wheelhouse_resilience::Registry;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let registry = Registry::builder().build()?;
    /// let _ = registry.get("search");
    /// assert!(registry.remove("search"));
    /// assert!(!registry.remove("search"));
    /// # Ok(()) }
    /// ```
    pub fn remove(&self, name: &str) -> bool {
        self.shared.breakers.remove(name).is_some()
    }

    /// Forgets what is idle, and returns how many that were. Happens by itself when names come.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Registry;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let registry = Registry::builder().idle(Duration::ZERO).build()?;
    /// let _ = registry.get("search");
    /// assert_eq!((registry.evict_idle(), registry.len()), (1, 0));
    /// # Ok(()) }
    /// ```
    pub fn evict_idle(&self) -> usize {
        let shared = &*self.shared;
        let now = shared.time.nanos();
        let mut entering = shared.entering.lock();
        let gone = shared.sweep(&mut entering, now);
        drop(entering);
        let count = gone.len();
        forget(gone);
        count
    }

    /// The names and figures of all breakers, in no order. Takes the lock of each shard in turn.
    ///
    /// ```
    /// use wheelhouse_resilience::Registry;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let registry = Registry::builder().build()?;
    /// registry.get("search").try_acquire().unwrap().failure();
    /// for (name, stats) in registry.all() {
    ///     println!("{name}: {} failures", stats.failures);
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn all(&self) -> Vec<(Arc<str>, BreakerStats)> {
        let breakers: Vec<(Arc<str>, Breaker)> = self
            .shared
            .breakers
            .iter()
            .map(|entry| (entry.key().clone(), entry.breaker.clone()))
            .collect();
        // Outside the locks: figures take locks of their own.
        breakers
            .into_iter()
            .map(|(name, breaker)| (name, breaker.stats()))
            .collect()
    }

    /// How many names there are, without those that are exempt. Waits for who enters a name.
    #[must_use]
    pub fn len(&self) -> usize {
        // The shards are counted one after the other: a name that leaves one and another that comes
        // to the next meanwhile would both count.
        let _entering = self.shared.entering.lock();
        self.shared.breakers.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.breakers.is_empty()
    }

    /// Its figures.
    #[must_use]
    pub fn stats(&self) -> RegistryStats {
        let entering = self.shared.entering.lock();
        RegistryStats {
            names: self.shared.breakers.len(),
            made: entering.made,
            idle: entering.idle,
            displaced: entering.displaced,
        }
    }
}

impl RegistryBuilder {
    /// What breakers of names without settings of their own are built from.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, Registry};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let registry = Registry::builder().default_breaker(Breaker::throttle()).build()?;
    /// assert_eq!(registry.get("search").name(), "search");
    /// # Ok(()) }
    /// ```
    pub fn default_breaker(mut self, recipe: impl Into<Recipe>) -> Self {
        self.default = recipe.into();
        self
    }

    /// What the breaker of this name is built from.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, Registry};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let registry = Registry::builder()
    ///     .configure("payments", Breaker::builder().max_in_flight(1))
    ///     .build()?;
    /// assert_eq!(registry.get("payments").stats().in_flight, Some(0));
    /// assert_eq!(registry.get("search").stats().in_flight, None);
    /// # Ok(()) }
    /// ```
    pub fn configure(mut self, name: impl Into<Arc<str>>, recipe: impl Into<Recipe>) -> Self {
        self.recipes.insert(name.into(), recipe.into());
        self
    }

    /// Gives this name a breaker that lets everything through, and goes on with that when it is
    /// [reset](Breaker::reset) or forced to something else.
    ///
    /// ```
    /// use wheelhouse_resilience::{Registry, State};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let registry = Registry::builder().exempt("health").build()?;
    /// registry.get("health").reset();
    /// assert_eq!(registry.get("health").state(), State::Disabled);
    /// # Ok(()) }
    /// ```
    pub fn exempt(mut self, name: impl Into<Arc<str>>) -> Self {
        self.exempt.push(name.into());
        self
    }

    /// How many names there are at most, from 1; 1 024 by default. Exempt ones do not count.
    ///
    /// ```
    /// use wheelhouse_resilience::Registry;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let registry = Registry::builder().max_names(2).build()?;
    /// for name in ["a", "b", "c"] {
    ///     let _ = registry.get(name);
    /// }
    /// assert!(registry.peek("a").is_none() && registry.len() == 2);
    /// # Ok(()) }
    /// ```
    pub fn max_names(mut self, names: usize) -> Self {
        self.max_names = names;
        self
    }

    /// How long a breaker that is not used is kept at least: any time, 10 minutes by default. It may
    /// be 1/64 longer, so that threads that ask for the same one need not write down each time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Registry;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let registry = Registry::builder().idle(Duration::from_secs(3600)).build()?;
    /// let _ = registry.get("search");
    /// assert_eq!(registry.evict_idle(), 0);
    /// # Ok(()) }
    /// ```
    pub fn idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// Where idleness is measured, the system's monotonic clock by default. The breakers have the
    /// clocks of their own settings.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Registry;
    /// use wheelhouse_wheel::ManualClock;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let clock = ManualClock::new();
    /// let registry = Registry::builder().clock(clock.clone()).build()?;
    /// let _ = registry.get("search");
    /// clock.advance(Duration::from_secs(610));
    /// assert_eq!(registry.evict_idle(), 1);
    /// # Ok(()) }
    /// ```
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.time = TimeSource::of(clock);
        self
    }

    /// The registry, without any breaker.
    ///
    /// # Errors
    ///
    /// [`BuildError`] when a setting is out of range, those of the breakers included.
    pub fn build(self) -> Result<Registry, BuildError> {
        if self.max_names == 0 {
            return Err(BuildError::new("max_names", "0", "1 and more"));
        }
        self.default.build("default".into())?;
        for (name, recipe) in &self.recipes {
            recipe.build(name.clone())?;
        }
        let exempt = self.exempt.into_iter().map(|name| {
            let breaker = Breaker::exempt(Arc::clone(&name))?;
            Ok((name, breaker))
        });
        Ok(Registry {
            shared: Arc::new(Shared {
                breakers: DashMap::new(),
                exempt: exempt.collect::<Result<_, BuildError>>()?,
                default: self.default,
                recipes: self.recipes,
                max_names: self.max_names,
                idle: nanos(self.idle),
                time: self.time,
                entering: Mutex::default(),
            }),
        })
    }
}

impl Recipe {
    fn build(&self, name: Arc<str>) -> Result<Breaker, BuildError> {
        match &self.0 {
            Kind::Circuit(builder) => builder.as_ref().clone().name(name).build(),
            Kind::Throttle(builder) => builder.as_ref().clone().name(name).build(),
        }
    }
}

impl From<BreakerBuilder> for Recipe {
    fn from(builder: BreakerBuilder) -> Self {
        Recipe(Kind::Circuit(Box::new(builder)))
    }
}

impl From<ThrottleBuilder> for Recipe {
    fn from(builder: ThrottleBuilder) -> Self {
        Recipe(Kind::Throttle(Box::new(builder)))
    }
}

impl Shared {
    fn known(&self, name: &str, now: u64) -> Option<Breaker> {
        let entry = self.breakers.get(name)?;
        // Relaxed, here and below: a time that decides about nothing but eviction.
        let used = entry.used.load(Ordering::Relaxed);
        // Seldom: threads that share a name would write to the same line with each call.
        if now.saturating_sub(used) > self.idle / UNWRITTEN {
            entry.used.store(now, Ordering::Relaxed);
        }
        Some(entry.breaker.clone())
    }

    #[cold]
    fn enter(&self, name: &str, now: u64) -> Breaker {
        let recipe = self.recipes.get(name).unwrap_or(&self.default);
        let key: Arc<str> = name.into();
        let breaker = recipe
            .build(key.clone())
            .expect("the same settings have been built with the registry");
        let mut entering = self.entering.lock();
        if let Some(known) = self.known(name, now) {
            drop(entering);
            return known;
        }
        let mut gone = Vec::new();
        if now >= entering.next_sweep || self.breakers.len() >= self.max_names {
            gone = self.sweep(&mut entering, now);
        }
        if self.breakers.len() >= self.max_names {
            gone.extend(self.displace(&mut entering));
        }
        entering.made += 1;
        let entry = Entry {
            breaker: breaker.clone(),
            used: AtomicU64::new(now),
        };
        self.breakers.insert(key, entry);
        drop(entering);
        forget(gone);
        breaker
    }

    /// Takes out what is idle.
    fn sweep(&self, entering: &mut Entering, now: u64) -> Vec<Entry> {
        entering.next_sweep = now.saturating_add(self.idle / 8);
        // It may have been used so much later than is written down.
        let idle = self.idle.saturating_add(self.idle / UNWRITTEN);
        let is_idle = |entry: &Entry| {
            let used = entry.used.load(Ordering::Relaxed);
            now.saturating_sub(used) >= idle && !entry.breaker.is_held()
        };
        let idle: Vec<Arc<str>> = self
            .breakers
            .iter()
            .filter(|entry| is_idle(entry))
            .map(|entry| entry.key().clone())
            .collect();
        let gone: Vec<Entry> = idle
            .iter()
            .filter_map(|name| self.breakers.remove_if(name, |_, entry| is_idle(entry)))
            .map(|(_, entry)| entry)
            .collect();
        entering.idle += gone.len() as u64;
        gone
    }

    /// Takes out the one that is missed least, and with it some that are neither open nor in use: that
    /// saves looking again soon.
    fn displace(&self, entering: &mut Entering) -> Vec<Entry> {
        // Who was used, taken or opened since the look stays. When all were, the second look is the
        // last word: names do not come in meanwhile, so a place must be made.
        let mut gone = self.displace_unchanged(1 + self.max_names / 64);
        if gone.is_empty() {
            gone = self.displace_unchanged(1 + self.max_names / 64);
        }
        if gone.is_empty()
            && let Some((name, _)) = self.ranked().first()
        {
            gone.extend(self.breakers.remove(name).map(|(_, entry)| entry));
        }
        entering.displaced += gone.len() as u64;
        gone
    }

    /// Takes out up to `most` that are missed least: the first even if it is open or in use.
    fn displace_unchanged(&self, most: usize) -> Vec<Entry> {
        let mut gone = Vec::new();
        for (name, rank) in self.ranked() {
            if gone.len() >= most || !gone.is_empty() && (rank.is_held || rank.is_open) {
                break;
            }
            let left = self
                .breakers
                .remove_if(&name, |_, entry| Rank::of(entry) <= rank);
            gone.extend(left.map(|(_, entry)| entry));
        }
        gone
    }

    /// All, in the order in which they leave.
    fn ranked(&self) -> Vec<(Arc<str>, Rank)> {
        let ranks = self.breakers.iter();
        let mut ranks: Vec<_> = ranks
            .map(|entry| (entry.key().clone(), Rank::of(&entry)))
            .collect();
        ranks.sort_unstable_by_key(|(_, rank)| *rank);
        ranks
    }
}

/// Drops breakers that have left, outside every lock. With them go policies of the user's, whose drop may
/// panic: whoever asked for another name has no part in that, and the other breakers go all the same.
fn forget(gone: Vec<Entry>) {
    for entry in gone {
        let name = entry.breaker.shared_name();
        if contained(|| drop(entry)).is_none() {
            report("policy of a breaker that left", &name);
        }
    }
}

/// How much a breaker is missed: the lower, the sooner it leaves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_held: bool,
    is_open: bool,
    used: u64,
}

impl Rank {
    /// Under the lock of a shard, so without a clock.
    fn of(entry: &Entry) -> Self {
        Rank {
            is_held: entry.breaker.is_held(),
            is_open: !entry.breaker.is_closed(),
            used: entry.used.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("stats", &self.stats())
            .field("max_names", &self.shared.max_names)
            .finish_non_exhaustive()
    }
}
