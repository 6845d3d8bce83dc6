//! Latency histograms in nanoseconds.
//!
//! A thin layer over `hdrhistogram`: preallocated, so recording never allocates, and saturating, so it
//! never fails. Smallest, largest and mean are exact; quantiles carry the relative error of the digits kept.
//!
//! What is recorded here is the latency the caller saw. Under a closed load (each coroutine waits for its
//! answer before it asks again) a stall delays the requests that would have followed, and those are missing
//! from the histogram: *coordinated omission*. Callers with an intended start time per request should
//! record from that time; nothing is corrected after the fact.

use crate::units::Nanos;

/// Largest value told apart, 100 s. Anything longer is counted there; the exact maximum is kept beside.
const HIGHEST_NS: u64 = 100_000_000_000;

/// Digits kept unless asked otherwise: quantiles within 0.1 %, about 220 KiB.
const DIGITS: u8 = 3;

/// Latencies in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
    min: u64,
    max: u64,
    /// Wide enough for 2^64 values of 2^64 ns.
    sum: u128,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl Histogram {
    /// An empty histogram that keeps three digits.
    pub fn new() -> Histogram {
        Histogram::with_digits(DIGITS)
    }

    /// An empty histogram that keeps `digits` significant digits, held within 1 and 4. Two digits (quantiles
    /// within 1 %) take a tenth of the memory: right for one histogram per coroutine or per phase.
    pub fn with_digits(digits: u8) -> Histogram {
        let digits = digits.clamp(1, 4);
        let counts = hdrhistogram::Histogram::new_with_bounds(1, HIGHEST_NS, digits)
            .expect("1..=100 s with 1 to 4 digits are bounds hdrhistogram accepts");
        Histogram { counts, min: u64::MAX, max: 0, sum: 0 }
    }

    /// Counts one latency.
    #[inline]
    pub fn record(&mut self, latency: Nanos) {
        self.record_n(latency, 1);
    }

    /// Counts the same latency `n` times.
    #[inline]
    pub fn record_n(&mut self, latency: Nanos, n: u64) {
        if n == 0 {
            return;
        }
        self.counts.saturating_record_n(latency.0, n);
        self.min = self.min.min(latency.0);
        self.max = self.max.max(latency.0);
        self.sum += u128::from(latency.0) * u128::from(n);
    }

    /// Adds everything `other` counted. Digits may differ; the coarser one's error stays.
    pub fn merge(&mut self, other: &Histogram) {
        if other.is_empty() {
            return;
        }
        // The bounds are the same for all histograms of this type, so nothing is out of range.
        let added = self.counts.add(&other.counts);
        debug_assert!(added.is_ok(), "histograms of this type share their bounds");
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }

    /// Forgets everything, keeps the memory. For the end of a warm-up.
    pub fn clear(&mut self) {
        self.counts.reset();
        self.min = u64::MAX;
        self.max = 0;
        self.sum = 0;
    }

    /// How many latencies were counted.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The smallest latency, exact; `None` if nothing was counted.
    pub fn min(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(Nanos(self.min))
    }

    /// The largest latency, exact; `None` if nothing was counted.
    pub fn max(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(Nanos(self.max))
    }

    /// The mean in nanoseconds, exact; `None` if nothing was counted.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.sum as f64 / self.count() as f64)
    }

    /// The latency that a share `q` (0 to 1) of the requests did not exceed; `None` if nothing was counted.
    pub fn quantile(&self, q: f64) -> Option<Nanos> {
        if self.is_empty() {
            return None;
        }
        // A bucket is told by its upper edge, which may lie past the exact largest latency, and on a single
        // bucket below the smallest one when values saturated.
        Some(Nanos(self.counts.value_at_quantile(q.clamp(0.0, 1.0)).clamp(self.min, self.max)))
    }

    /// Median.
    pub fn p50(&self) -> Option<Nanos> {
        self.quantile(0.50)
    }

    /// 90th percentile.
    pub fn p90(&self) -> Option<Nanos> {
        self.quantile(0.90)
    }

    /// 99th percentile.
    pub fn p99(&self) -> Option<Nanos> {
        self.quantile(0.99)
    }

    /// 99.9th percentile.
    pub fn p999(&self) -> Option<Nanos> {
        self.quantile(0.999)
    }

    /// The form kept in `histograms/<point>.json`.
    pub fn to_data(&self) -> HistogramData {
        let counts = self
            .counts
            .iter_recorded()
            .map(|it| (it.value_iterated_to().clamp(self.min, self.max), it.count_at_value()))
            .collect();
        HistogramData { unit: "ns".to_owned(), max: if self.is_empty() { 0 } else { self.max }, counts }
    }

    /// A histogram from its kept form. Counts are as they were; smallest and mean are now as exact as the
    /// buckets.
    ///
    /// # Errors
    /// When the unit is not `ns`, or a count is so large that the total would overflow.
    pub fn from_data(data: &HistogramData) -> Result<Histogram, String> {
        if data.unit != "ns" {
            return Err(format!("histogram in `{}`, only `ns` is known", data.unit));
        }
        let mut total = 0u64;
        let mut histogram = Histogram::new();
        for &(value, count) in &data.counts {
            total = total
                .checked_add(count)
                .ok_or_else(|| format!("histogram counts pass {} at value {value}", u64::MAX))?;
            histogram.record_n(Nanos(value), count);
        }
        histogram.max = histogram.max.max(data.max);
        Ok(histogram)
    }
}

/// `histograms/<point>.json`: the buckets that are not empty.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistogramData {
    /// Always `ns`.
    pub unit: String,
    /// The largest latency, exact.
    pub max: u64,
    /// Upper edge of a bucket and how many latencies fell into it, ascending.
    pub counts: Vec<(u64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn empty_has_no_quantiles() {
        let h = Histogram::new();
        assert_eq!((h.min(), h.p50(), h.p999(), h.max(), h.mean_ns()), (None, None, None, None, None));
        assert_eq!(h.to_data(), HistogramData { unit: "ns".into(), max: 0, counts: vec![] });
    }

    #[test]
    fn quantiles_of_a_known_ramp() {
        let mut h = Histogram::new();
        (1..=1000).for_each(|v| h.record(Nanos(v)));
        // Below 2 048 ns three digits are exact.
        assert_eq!(h.p50(), Some(Nanos(500)));
        assert_eq!(h.p90(), Some(Nanos(900)));
        assert_eq!(h.p99(), Some(Nanos(990)));
        assert_eq!(h.p999(), Some(Nanos(999)));
        assert_eq!((h.min(), h.max(), h.mean_ns()), (Some(Nanos(1)), Some(Nanos(1000)), Some(500.5)));
    }

    #[test]
    fn longer_than_the_range_is_counted_and_its_maximum_is_exact() {
        let mut h = Histogram::new();
        h.record(Nanos(u64::MAX));
        assert_eq!((h.count(), h.max(), h.p50()), (1, Some(Nanos(u64::MAX)), Some(Nanos(u64::MAX))));
        h.record(Nanos(0));
        assert_eq!(h.min(), Some(Nanos(0)));
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let data = HistogramData { unit: "ns".into(), max: 2, counts: vec![(1, u64::MAX), (2, 1)] };
        assert!(Histogram::from_data(&data).unwrap_err().contains("pass"));
        let data = HistogramData { unit: "us".into(), max: 2, counts: vec![] };
        assert!(Histogram::from_data(&data).unwrap_err().contains("`us`"));
    }

    proptest! {
        #[test]
        fn quantiles_stay_within_the_digits(mut values in proptest::collection::vec(0u64..10_000_000_000, 1..300),
                                            digits in 2u8..=3, q in 0.0f64..=1.0) {
            let mut h = Histogram::with_digits(digits);
            values.iter().for_each(|&v| h.record(Nanos(v)));
            values.sort_unstable();
            // hdrhistogram rounds the rank up, as the nearest-rank definition does; quantiles computed in
            // floating point may land one rank beside.
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let low = values[rank.saturating_sub(2)] as f64;
            let high = values[rank.min(values.len() - 1)] as f64;
            let err = 10f64.powi(-i32::from(digits));
            let got = h.quantile(q).unwrap().0 as f64;
            prop_assert!(got >= low * (1.0 - err) - 1.0 && got <= high * (1.0 + err) + 1.0, "{low} <= {got} <= {high}");
        }

        #[test]
        fn merging_equals_recording_together(a in proptest::collection::vec(any::<u64>(), 0..100),
                                             b in proptest::collection::vec(0u64..1_000_000, 0..100)) {
            let (mut left, mut right, mut both) = (Histogram::new(), Histogram::new(), Histogram::new());
            for &v in &a { left.record(Nanos(v)); both.record(Nanos(v)); }
            for &v in &b { right.record(Nanos(v)); both.record(Nanos(v)); }
            left.merge(&right);
            prop_assert_eq!(left.to_data(), both.to_data());
            prop_assert_eq!((left.min(), left.max(), left.mean_ns()), (both.min(), both.max(), both.mean_ns()));
        }

        #[test]
        fn kept_and_read_back_has_the_same_quantiles(values in proptest::collection::vec(any::<u64>(), 1..200)) {
            let mut h = Histogram::new();
            values.iter().for_each(|&v| h.record(Nanos(v)));
            let json = serde_json::to_string(&h.to_data()).unwrap();
            let back = Histogram::from_data(&serde_json::from_str(&json).unwrap()).unwrap();
            for q in [0.0, 0.5, 0.9, 0.99, 0.999, 1.0] {
                prop_assert_eq!(back.quantile(q).map(|v| v.0 >> 53 > 0 || v == h.quantile(q).unwrap()), Some(true));
            }
            prop_assert_eq!((back.count(), back.max()), (h.count(), h.max()));
        }
    }
}
