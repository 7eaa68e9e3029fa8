//! Belady's policy (1966): whoever is asked for again last goes, or never comes in.

use std::collections::BTreeSet;

/// The hits of the best possible cache of `capacity` entries.
pub(super) fn hits(keys: &[u32], capacity: u64) -> u64 {
    let distinct = keys.iter().max().map_or(0, |most| *most as usize + 1);
    let mut next_of = vec![usize::MAX; keys.len()];
    let mut seen_at = vec![usize::MAX; distinct];
    for (at, &key) in keys.iter().enumerate().rev() {
        next_of[at] = seen_at[key as usize];
        seen_at[key as usize] = at;
    }
    // Those in the cache, by when they are asked for next.
    let mut held = BTreeSet::new();
    let mut next_held = vec![None; distinct];
    let mut hits = 0;
    for (at, &key) in keys.iter().enumerate() {
        if let Some(next) = next_held[key as usize].take() {
            hits += 1;
            held.remove(&(next, key));
        } else if held.len() as u64 == capacity {
            match held.last() {
                Some(&(next, last)) if next > next_of[at] => {
                    held.remove(&(next, last));
                    next_held[last as usize] = None;
                }
                _ => continue,
            }
        }
        next_held[key as usize] = Some(next_of[at]);
        held.insert((next_of[at], key));
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_asked_for_soonest() {
        // Neither 2 nor 3 comes in.
        assert_eq!(hits(&[1, 2, 1, 3, 1, 2], 1), 2);
        // 3 does not.
        assert_eq!(hits(&[1, 2, 1, 3, 1, 2], 2), 3);
        // 3 drives out 2, which is asked for later.
        assert_eq!(hits(&[1, 2, 1, 3, 3, 1, 2], 2), 3);
        assert_eq!(hits(&[], 2), 0);
        // A loop of 11 over 5: four stay, one changes.
        let keys: Vec<u32> = (0..1_100).map(|at| at % 11).collect();
        let ratio = hits(&keys, 5) as f64 / 1_100.0;
        assert!((0.38..0.46).contains(&ratio), "{ratio}");
    }
}
