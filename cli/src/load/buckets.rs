//! Buckets whose edges are round numbers, a fixed number of them to a decade: what the
//! chart in the terminal and the plot both draw.

use hdrhistogram::Histogram;

/// Tasks whose lateness is in `from_ns..to_ns`; the first one starts at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) count: u64,
}

/// Round numbers that divide a decade, finest first: Renard's series and 1-2-5.
const SERIES: [&[u64]; 5] = [
    &[
        1000, 1120, 1250, 1400, 1600, 1800, 2000, 2240, 2500, 2800, 3150, 3550, 4000, 4500, 5000,
        5600, 6300, 7100, 8000, 9000,
    ],
    &[1000, 1250, 1600, 2000, 2500, 3150, 4000, 5000, 6300, 8000],
    &[1000, 1600, 2500, 4000, 6300],
    &[1000, 2000, 5000],
    &[1000],
];

/// At most `most` buckets that hold everything in `lateness` (nanoseconds). The lowest part of
/// the tasks, `first` of 1, shares the first bucket, so that a few very punctual ones do not
/// stretch the picture. Empty when nothing was recorded.
pub(super) fn buckets(lateness: &Histogram<u64>, most: usize, first: f64) -> Vec<Bucket> {
    if lateness.is_empty() {
        return Vec::new();
    }
    let (low, high) = (lateness.value_at_quantile(first), lateness.max());
    let mut edges = Vec::new();
    for series in SERIES {
        edges = edges_between(series, low, high);
        if edges.len() <= most + 1 {
            break;
        }
    }
    let mut buckets: Vec<Bucket> = edges
        .windows(2)
        .map(|pair| Bucket {
            from_ns: pair[0],
            to_ns: pair[1],
            count: 0,
        })
        .collect();
    buckets[0].from_ns = 0;
    let mut index = 0;
    for step in lateness.iter_recorded() {
        while step.value_iterated_to() >= buckets[index].to_ns && index + 1 < buckets.len() {
            index += 1;
        }
        buckets[index].count += step.count_at_value();
    }
    buckets
}

/// The edges of a series from the last one not above `low` to the first one above `high`;
/// at least two, none below a microsecond.
fn edges_between(series: &[u64], low: u64, high: u64) -> Vec<u64> {
    let mut edges = Vec::new();
    // The series starts at 1000 ns; a lateness is at most a few hours.
    let decades = (0..12).map(|decade| 10_u64.pow(decade));
    for edge in decades.flat_map(|decade| series.iter().map(move |step| step * decade)) {
        if edge <= low {
            edges.clear();
        }
        edges.push(edge);
        if edges.len() > 1 && edge > high {
            break;
        }
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tally::histogram;

    #[test]
    fn every_task_is_in_a_bucket() {
        let mut lateness = histogram();
        for lateness_ns in [
            0, 1, 999, 1000, 5_000, 700_000, 999_999, 1_000_000, 36_000_000,
        ] {
            lateness.record(lateness_ns).unwrap();
        }
        for most in [1, 5, 20, 200] {
            let buckets = buckets(&lateness, most, 0.001);
            assert!(
                most == 1 || buckets.len() <= most,
                "{most}: {}",
                buckets.len()
            );
            assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 9);
            assert_eq!(buckets[0].from_ns, 0);
            assert!(
                buckets
                    .windows(2)
                    .all(|pair| pair[0].to_ns == pair[1].from_ns)
            );
            assert!(buckets.last().unwrap().to_ns > 36_000_000);
        }
    }

    #[test]
    fn equal_values_make_one_bucket() {
        let mut lateness = histogram();
        lateness.record_n(500_000, 10).unwrap();
        let only = buckets(&lateness, 20, 0.5);
        assert_eq!(only.len(), 1);
        assert_eq!(only[0].count, 10);
        assert!(only[0].to_ns > 500_000 && only[0].to_ns < 600_000);
    }

    #[test]
    fn nothing_makes_no_bucket() {
        assert!(buckets(&histogram(), 20, 0.01).is_empty());
    }
}
