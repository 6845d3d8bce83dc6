//! The mix of a workload: kinds of transactions, drawn by weight.

use super::params::{ParamError, Params};
use rand::{Rng, RngExt};

/// The names of a mix's kinds, which stand beside them in the order of their numbers.
pub const fn names<K: Copy, const N: usize>(kinds: &[(&'static str, K); N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut n = 0;
    while n < N {
        names[n] = kinds[n].0;
        n += 1;
    }
    names
}

/// Kinds and their weights, of which not all are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix<K, const N: usize> {
    kinds: [(K, u64); N],
    total: u64,
}

impl<K: Copy + PartialEq, const N: usize> Mix<K, N> {
    /// The mix whose weights are the whole-number parameters that `kinds` names.
    ///
    /// # Errors
    /// If all of them are zero.
    pub fn parse(p: &Params, kinds: &[(&'static str, K); N]) -> Result<Mix<K, N>, ParamError> {
        let kinds = kinds.map(|(name, kind)| (kind, p.int(name)));
        let total = kinds.iter().map(|(_, weight)| weight).sum();
        if total == 0 {
            return Err(p.refuse("all weights of the mix are zero; set at least one"));
        }
        Ok(Mix { kinds, total })
    }

    /// Draws a kind.
    #[inline]
    pub fn draw(&self, rng: &mut impl Rng) -> K {
        let mut ticket = rng.random_range(0..self.total);
        let mut drawn = self.kinds[0].0;
        for (kind, weight) in self.kinds {
            drawn = kind;
            if ticket < weight {
                break;
            }
            ticket -= weight;
        }
        drawn
    }

    /// The weight of a kind.
    pub fn weight(&self, kind: K) -> u64 {
        self.kinds.iter().filter(|(k, _)| *k == kind).map(|(_, weight)| weight).sum()
    }

    /// Its share of the draws.
    pub fn share(&self, kind: K) -> f64 {
        self.weight(kind) as f64 / self.total as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::params::Param;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    const DECLARED: &[Param] = &[
        Param::int("a", 0, 0, 1000, "first"),
        Param::int("b", 3, 0, 1000, "second"),
        Param::int("c", 0, 0, 1000, "third"),
        Param::int("d", 1, 0, 1000, "last"),
    ];
    const KINDS: [(&str, char); 4] = [("a", 'a'), ("b", 'b'), ("c", 'c'), ("d", 'd')];

    fn mix(settings: &[(&str, &str)]) -> Result<Mix<char, 4>, ParamError> {
        Mix::parse(&Params::parse("toy", DECLARED, settings.iter().copied()).unwrap(), &KINDS)
    }

    #[test]
    fn kinds_come_by_their_weights_and_those_without_never() {
        let mix = mix(&[]).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut drawn = std::collections::BTreeMap::new();
        for _ in 0..40_000 {
            *drawn.entry(mix.draw(&mut rng)).or_insert(0) += 1;
        }
        assert_eq!(drawn.keys().copied().collect::<Vec<_>>(), ['b', 'd']);
        // Five standard deviations.
        assert!((drawn[&'b'] as f64 - 30_000.0).abs() < 5.0 * 40_000f64.sqrt() * 0.433, "{drawn:?}");
        assert_eq!((mix.weight('b'), mix.weight('a'), mix.share('d')), (3, 0, 0.25));
    }

    #[test]
    fn a_mix_of_nothing_is_refused() {
        let refused = mix(&[("b", "0"), ("d", "0")]).unwrap_err();
        assert!(refused.to_string().contains("all weights of the mix are zero"), "{refused}");
    }
}
