//! Key distributions: uniform, hot set, and YCSB's zipfian.
//!
//! A sampler yields *ranks* from 0, the hottest first where there is such a thing. What a rank means is the
//! workload's affair; placement by remainder spreads neighbouring ranks, and so the hot ones, over all nodes.

use super::params::{ParamError, Params};
use rand::{Rng, RngExt};

/// How keys are chosen out of `0..n`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyDist {
    /// Every key equally often.
    Uniform {
        /// Number of keys.
        keys: u64,
    },
    /// The first `hot` keys take `hot_share` of the draws, the others the rest; uniform within both.
    /// SmallBank's skew in FaSST and DrTM+H (§5: "4% of records are accessed by 90% of transactions").
    HotSet {
        /// Number of keys.
        keys: u64,
        /// Number of hot keys.
        hot: u64,
        /// Share of draws that go to them.
        hot_share: f64,
    },
    /// Rank `r` (from 0) with probability proportional to `1 / (r + 1)^theta`.
    Zipfian(Zipfian),
}

/// The other nodes, of a client that draws no keys of its own node. Keys are placed by their remainder.
#[derive(Clone, Copy, Debug)]
pub struct Others {
    nodes: u64,
    own: u64,
}

/// Draws at the most until one is another node's; then its next neighbour is taken that is. A single key may take nearly all draws, and be
/// of the own node.
const REDRAWS: usize = 64;

impl Others {
    /// Of so many nodes all but `own`.
    pub fn than(own: u16, nodes: u16) -> Others {
        Others { nodes: u64::from(nodes), own: u64::from(own) }
    }

    /// Whether one of them has the key.
    fn have(self, key: u64) -> bool {
        key % self.nodes != self.own
    }
}

/// Refuses clients that shall draw no keys of their own node if there is no other one, or the others have fewer than `least` of `keys`
/// that follow each other.
///
/// # Errors
/// As said.
pub fn check_remote(p: &Params, nodes: u16, keys: u64, least: u64) -> Result<(), ParamError> {
    if nodes < 2 {
        return Err(p.refuse("remote=true takes records of other nodes, and there is one node".to_owned()));
    }
    // A node may have the first of them and the last.
    let others = keys - keys.div_ceil(u64::from(nodes));
    if others < least {
        return Err(p.refuse(format!(
            "remote=true takes {least} different records of other nodes, and they have {others} of {keys}"
        )));
    }
    Ok(())
}

impl KeyDist {
    /// The distribution over `keys` keys that the parameters `zipf_theta`, or `hot_records_share` and `hot_accesses_share`, ask
    /// for. There is a hot set if `switch`, one of the latter two, is not zero.
    ///
    /// # Errors
    /// If both kinds of skew are set, or accesses go to a hot set without records.
    pub fn parse(p: &Params, keys: u64, switch: &str) -> Result<KeyDist, ParamError> {
        let (theta, of_keys) = (p.real("zipf_theta"), p.real("hot_records_share"));
        if p.real(switch) == 0.0 {
            return Ok(KeyDist::zipfian(keys, theta));
        }
        if theta > 0.0 {
            return Err(p.refuse(format!("zipf_theta and {switch} are two kinds of skew; set one")));
        }
        if of_keys == 0.0 {
            return Err(p.refuse(format!("{switch} needs a hot area: hot_records_share is 0")));
        }
        Ok(KeyDist::hot_set(keys, of_keys, p.real("hot_accesses_share")))
    }

    /// Number of keys.
    pub fn keys(&self) -> u64 {
        match self {
            KeyDist::Uniform { keys } | KeyDist::HotSet { keys, .. } => *keys,
            KeyDist::Zipfian(zipfian) => zipfian.keys,
        }
    }

    /// Uniform over `keys` keys.
    pub fn uniform(keys: u64) -> KeyDist {
        KeyDist::Uniform { keys: keys.max(1) }
    }

    /// A hot set of the share `of_keys` of `keys` keys (at least one key), which takes `hot_share` of the draws.
    pub fn hot_set(keys: u64, of_keys: f64, hot_share: f64) -> KeyDist {
        let keys = keys.max(1);
        let hot = ((keys as f64 * of_keys).round() as u64).clamp(1, keys);
        if hot == keys { KeyDist::uniform(keys) } else { KeyDist::HotSet { keys, hot, hot_share } }
    }

    /// Zipfian over `keys` keys; `theta` of zero is uniform.
    pub fn zipfian(keys: u64, theta: f64) -> KeyDist {
        if theta == 0.0 { KeyDist::uniform(keys) } else { KeyDist::Zipfian(Zipfian::new(keys, theta)) }
    }

    /// Draws one key.
    #[inline]
    pub fn sample(&self, rng: &mut impl Rng) -> u64 {
        match self {
            KeyDist::Uniform { keys } => rng.random_range(0..*keys),
            KeyDist::HotSet { keys, hot, hot_share } => {
                if rng.random::<f64>() < *hot_share {
                    rng.random_range(0..*hot)
                } else {
                    rng.random_range(*hot..*keys)
                }
            }
            KeyDist::Zipfian(zipfian) => zipfian.sample(rng),
        }
    }

    /// Draws a key, of those that `others` have if it is only these.
    #[inline]
    pub fn sample_of(&self, others: Option<Others>, rng: &mut impl Rng) -> u64 {
        let Some(others) = others else { return self.sample(rng) };
        let mut key = self.sample(rng);
        for _ in 0..REDRAWS {
            if others.have(key) {
                return key;
            }
            key = self.sample(rng);
        }
        self.next_of(others, key)
    }

    /// A key or its next neighbour that others have.
    fn next_of(&self, others: Others, mut key: u64) -> u64 {
        while !others.have(key) {
            key = (key + 1) % self.keys();
        }
        key
    }

    /// Draws a key that is not among `taken`, of which there are fewer than keys: where the draw is, its next free neighbour. A
    /// redraw might not end where one key takes nearly all.
    #[inline]
    pub fn sample_other(&self, taken: &[u64], others: Option<Others>, rng: &mut impl Rng) -> u64 {
        debug_assert!((taken.len() as u64) < self.keys());
        let mut key = self.sample_of(others, rng);
        while taken.contains(&key) || others.is_some_and(|others| !others.have(key)) {
            key = (key + 1) % self.keys();
        }
        key
    }

    /// As [`KeyDist::sample_pair`], of the keys that `others` have if it is only these. Where both parts have two of those, both keys are of one
    /// part but where dozens of draws were in vain.
    pub fn sample_pair_of(&self, others: Option<Others>, rng: &mut impl Rng) -> (u64, u64) {
        let Some(others) = others else { return self.sample_pair(rng) };
        let mut pair = self.sample_pair(rng);
        for _ in 0..REDRAWS {
            if others.have(pair.0) && others.have(pair.1) {
                return pair;
            }
            pair = self.sample_pair(rng);
        }
        let first = self.next_of(others, pair.0);
        (first, self.next_of(others, (first + 1) % self.keys()))
    }

    /// Draws two different keys out of the same part of the distribution, as SmallBank's two-account
    /// transactions do: both hot or both cold.
    ///
    /// With a single key (or a hot set of one) there is no second one, and both are that key.
    pub fn sample_pair(&self, rng: &mut impl Rng) -> (u64, u64) {
        let within = |rng: &mut _, from: u64, to: u64| pair_in(rng, from, to);
        match self {
            KeyDist::Uniform { keys } => within(rng, 0, *keys),
            KeyDist::HotSet { keys, hot, hot_share } => {
                if rng.random::<f64>() < *hot_share {
                    within(rng, 0, *hot)
                } else {
                    within(rng, *hot, *keys)
                }
            }
            KeyDist::Zipfian(zipfian) => {
                let first = zipfian.sample(rng);
                // A redraw until it differs may take long where one key holds nearly all: bounded, then a neighbour.
                for _ in 0..16 {
                    let second = zipfian.sample(rng);
                    if second != first {
                        return (first, second);
                    }
                }
                (first, (first + 1) % zipfian.keys)
            }
        }
    }
}

fn pair_in(rng: &mut impl Rng, from: u64, to: u64) -> (u64, u64) {
    let first = rng.random_range(from..to);
    if to - from < 2 {
        return (first, first);
    }
    let second = rng.random_range(from..to - 1);
    (first, if second >= first { second + 1 } else { second })
}

/// The zipfian generator of Gray et al. ("Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994,
/// §3.2) that YCSB uses (Cooper et al., SoCC 2010), so that a skew means here what it means there.
///
/// Exact for the two hottest ranks; further ranks follow a power law fitted to the total. Unlike YCSB's
/// `ScrambledZipfian` ranks are not hashed over the key space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zipfian {
    keys: u64,
    alpha: f64,
    zetan: f64,
    eta: f64,
    /// `zeta(2, theta)`: below it lie the two ranks drawn exactly.
    zeta2: f64,
}

impl Zipfian {
    /// Over `keys` ranks with skew `theta`, in (0, 1) as the generator demands; values outside are held inside.
    pub fn new(keys: u64, theta: f64) -> Zipfian {
        let keys = keys.max(1);
        let theta = theta.clamp(1e-6, 0.9999);
        let zetan = zeta(keys, theta);
        let zeta2 = zeta(2, theta);
        let eta = if keys > 2 {
            (1.0 - (2.0 / keys as f64).powf(1.0 - theta)) / (1.0 - zeta2 / zetan)
        } else {
            1.0
        };
        Zipfian { keys, alpha: 1.0 / (1.0 - theta), zetan, eta, zeta2 }
    }

    /// Number of ranks.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Share of draws that go to the first `ranks` ranks.
    pub fn share_of_first(&self, ranks: u64) -> f64 {
        let theta = 1.0 - 1.0 / self.alpha;
        zeta(ranks.min(self.keys), theta) / self.zetan
    }

    /// Draws one rank.
    #[inline]
    pub fn sample(&self, rng: &mut impl Rng) -> u64 {
        let u: f64 = rng.random();
        let uz = u * self.zetan;
        if uz < 1.0 || self.keys == 1 {
            return 0;
        }
        if uz < self.zeta2 || self.keys == 2 {
            return 1;
        }
        let rank = self.keys as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.keys - 1)
    }
}

/// Sums of this many terms are added up one by one; longer ones end in an Euler–Maclaurin tail, whose error
/// there is far below that of the additions.
const ZETA_TERMS: u64 = 1 << 16;

/// The generalized harmonic number: the sum of `1 / i^theta` for `i` in `1..=n`.
fn zeta(n: u64, theta: f64) -> f64 {
    let head = n.min(ZETA_TERMS);
    let sum: f64 = (1..=head).map(|i| (i as f64).powf(-theta)).sum();
    if n == head {
        return sum;
    }
    let (a, b) = (head as f64, n as f64);
    let integral = (b.powf(1.0 - theta) - a.powf(1.0 - theta)) / (1.0 - theta);
    let ends = (b.powf(-theta) - a.powf(-theta)) / 2.0;
    let slopes = theta * (a.powf(-theta - 1.0) - b.powf(-theta - 1.0)) / 12.0;
    sum + integral + ends + slopes
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    const DRAWS: u64 = 400_000;

    fn shares(dist: &KeyDist, keys: u64) -> Vec<f64> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut counts = vec![0u64; keys as usize];
        for _ in 0..DRAWS {
            counts[dist.sample(&mut rng) as usize] += 1;
        }
        counts.iter().map(|&c| c as f64 / DRAWS as f64).collect()
    }

    /// Five standard deviations of a share near `p`.
    fn near(p: f64) -> f64 {
        5.0 * (p * (1.0 - p) / DRAWS as f64).sqrt()
    }

    #[test]
    fn uniform_and_hot_set_have_the_shares_they_say() {
        for &share in &shares(&KeyDist::uniform(50), 50) {
            assert!((share - 0.02).abs() < near(0.02), "{share}");
        }
        let hot = shares(&KeyDist::hot_set(100, 0.04, 0.9), 100);
        let of_hot: f64 = hot[..4].iter().sum();
        assert!((of_hot - 0.9).abs() < near(0.9), "{of_hot}");
        assert!(hot[4..].iter().all(|&s| (s - 0.1 / 96.0).abs() < near(0.1 / 96.0)));
    }

    #[test]
    fn others_keys_are_drawn_as_often_as_they_are_among_all() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let (zipfian, others) = (KeyDist::zipfian(12, 0.9), Others::than(1, 4));
        let all = shares(&zipfian, 12);
        let theirs: f64 =
            all.iter().zip(0..).filter(|(_, key)| others.have(*key)).map(|(share, _)| share).sum();
        let mut counts = [0u64; 12];
        for _ in 0..DRAWS {
            counts[zipfian.sample_of(Some(others), &mut rng) as usize] += 1;
        }
        for (key, count) in counts.into_iter().enumerate() {
            let expected = if others.have(key as u64) { all[key] / theirs } else { 0.0 };
            let got = count as f64 / DRAWS as f64;
            assert!((got - expected).abs() < 2.0 * near(expected.max(1e-4)), "{key}: {got}, {expected}");
        }
        for dist in [KeyDist::uniform(4), KeyDist::hot_set(100, 0.04, 0.9), KeyDist::zipfian(100, 0.9999)] {
            for own in 0..2 {
                let others = Others::than(own, 2);
                let (a, b) = dist.sample_pair_of(Some(others), &mut rng);
                assert!(others.have(a) && others.have(b) && a != b, "{dist:?}: {a}, {b}");
                let c = dist.sample_other(&[a], Some(others), &mut rng);
                assert!(others.have(c) && c != a, "{dist:?}: {c} beside {a}");
            }
        }
        // One key takes nearly all, and is the own node's.
        assert_eq!(KeyDist::hot_set(64, 0.01, 1.0).sample_of(Some(Others::than(0, 2)), &mut rng), 1);
    }

    #[test]
    fn zipfian_matches_the_exact_distribution() {
        for (keys, theta) in [(1000u64, 0.99), (1000, 0.5), (10, 0.9)] {
            let total: f64 = (1..=keys).map(|i| (i as f64).powf(-theta)).sum();
            let exact: Vec<f64> = (1..=keys).map(|i| (i as f64).powf(-theta) / total).collect();
            let got = shares(&KeyDist::zipfian(keys, theta), keys);
            // The two hottest ranks are drawn exactly.
            for rank in 0..2 {
                let diff = (got[rank] - exact[rank]).abs();
                assert!(
                    diff < near(exact[rank]),
                    "theta {theta}, rank {rank}: {} for {}",
                    got[rank],
                    exact[rank]
                );
            }
            // The rest is the published approximation: its distribution function stays within 2 %.
            let (mut a, mut b, mut worst) = (0.0, 0.0, 0.0f64);
            for (g, e) in got.iter().zip(&exact) {
                a += g;
                b += e;
                worst = worst.max((a - b).abs());
            }
            assert!(worst < 0.02, "theta {theta}, {keys} keys: distribution functions {worst} apart");
        }
    }

    #[test]
    fn a_long_zeta_equals_the_plain_sum() {
        for theta in [0.01, 0.5, 0.99] {
            let n = 4 * ZETA_TERMS + 17;
            let plain: f64 = (1..=n).map(|i| (i as f64).powf(-theta)).sum();
            assert!((zeta(n, theta) / plain - 1.0).abs() < 1e-11, "theta {theta}");
        }
    }

    #[test]
    fn pairs_differ_and_stay_on_their_side_of_the_hot_set() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        for dist in [KeyDist::uniform(3), KeyDist::hot_set(100, 0.04, 0.5), KeyDist::zipfian(5, 0.99)] {
            for _ in 0..2_000 {
                let (a, b) = dist.sample_pair(&mut rng);
                assert_ne!(a, b, "{dist:?}");
                if let KeyDist::HotSet { hot, .. } = dist {
                    assert_eq!(a < hot, b < hot);
                }
            }
        }
        assert_eq!(KeyDist::uniform(1).sample_pair(&mut rng), (0, 0));
    }

    #[test]
    fn degenerate_sizes_stay_inside() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        for keys in 1..=4 {
            for dist in
                [KeyDist::uniform(keys), KeyDist::hot_set(keys, 0.04, 0.9), KeyDist::zipfian(keys, 0.99)]
            {
                assert!((0..500).all(|_| dist.sample(&mut rng) < keys), "{dist:?}");
            }
        }
    }
}
