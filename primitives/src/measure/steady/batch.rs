//! Where a series of counts becomes stationary, and how well its mean is known.
//!
//! Pure functions of a series: equal time slots in order, each with what ended in it.

/// Slots that MSER-5 averages before it looks: single slots are too noisy, and often empty.
const GROUP: usize = 5;

/// Batches that are tried, most first: fewer batches are longer, thus less dependent on each other, but say
/// less of their variance. Under ten the interval is mostly Student's t.
const BATCHES: [usize; 3] = [BATCHES_MOST, 16, 10];

/// Most batches.
const BATCHES_MOST: usize = 32;

/// Fewest slots for an interval: three to each of the fewest batches.
pub const SLOTS_LEAST: usize = 30;

/// Two-sided 95 % quantile of Student's t for the mean of so many values, one degree of freedom less, from the table of the
/// NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2, column 0.975. Between the counts it has (the batch counts above,
/// and a few runs) the next smaller one is taken, whose interval is wider.
fn student_t(values: usize) -> f64 {
    match values {
        0..=2 => 12.706,
        3 => 4.303,
        4 => 3.182,
        5..=9 => 2.776,
        10..=15 => 2.262,
        16..=31 => 2.131,
        _ => 2.040,
    }
}

/// Mean of independent values, and half the width of its 95 % confidence interval as a share of it; no interval of fewer than two
/// values or about zero. No mean of none.
pub fn mean_of(values: &[f64]) -> Option<(f64, Option<f64>)> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let known = values.len() > 1 && mean > 0.0;
    let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    let ci = || student_t(values.len()) * (squares / (n - 1.0) / n).sqrt() / mean;
    (!values.is_empty()).then(|| (mean, known.then(ci)))
}

/// How many slots at the beginning are warm-up, by MSER-5 (White, Cobb and Spratt, WSC 2000): of all truncations,
/// the one that leaves the smallest squared standard error of the mean of groups of five slots. `None` if that is more
/// than half of the series, the rule's own sign that it is too short to tell, or if there are fewer than ten groups.
pub fn mser5(series: &[f64]) -> Option<usize> {
    let groups: Vec<f64> = series.chunks_exact(GROUP).map(|g| g.iter().sum::<f64>() / GROUP as f64).collect();
    if groups.len() < 10 {
        return None;
    }
    let (mut sum, mut squares, mut best) = (0.0, 0.0, (f64::INFINITY, groups.len()));
    // Sums about the first value of the tail: counts are large and their spread small.
    let about = groups[groups.len() - 1];
    for (cut, value) in groups.iter().enumerate().rev() {
        let left = (groups.len() - cut) as f64;
        sum += value - about;
        squares += (value - about) * (value - about);
        // With a handful of groups left the error says nothing; the rule leaves them out.
        if left >= GROUP as f64 {
            let error = (squares - sum * sum / left).max(0.0) / (left * left);
            if error <= best.0 {
                best = (error, cut);
            }
        }
    }
    (best.1 <= groups.len() / 2).then_some(best.1 * GROUP)
}

/// A mean by batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchMeans {
    /// Mean of a slot.
    pub mean: f64,
    /// Half of the 95 % confidence interval, over the mean.
    pub relative: f64,
    /// Batches.
    pub batches: usize,
    /// Slots in each.
    pub slots: usize,
    /// Correlation of neighbouring batches.
    pub lag1: f64,
    /// Whether that correlation is no larger than independent batches show nineteen times in twenty. If not, the interval
    /// is too narrow and the series should be longer.
    pub independent: bool,
    /// The mean of a slot in each batch, in order, then nothing.
    of: [f64; BATCHES_MOST],
}

impl BatchMeans {
    /// The mean of a slot in each batch, in order.
    pub fn each(&self) -> &[f64] {
        &self.of[..self.batches]
    }
}

/// The mean of a stationary series and its confidence interval: 32 batches, or fewer and longer ones while neighbours
/// are correlated. What does not fill a batch is left out at the beginning. `None` with fewer than [`SLOTS_LEAST`]
/// slots, or if nothing was counted.
pub fn batch_means(series: &[f64]) -> Option<BatchMeans> {
    if series.len() < SLOTS_LEAST {
        return None;
    }
    let mut last = None;
    for batches in BATCHES.into_iter().filter(|b| series.len() >= *b) {
        let means = of_batches(series, batches)?;
        if means.independent {
            return Some(means);
        }
        last = Some(means);
    }
    last
}

fn of_batches(series: &[f64], batches: usize) -> Option<BatchMeans> {
    let slots = series.len() / batches;
    let used = &series[series.len() - slots * batches..];
    let of: Vec<f64> = used.chunks_exact(slots).map(|b| b.iter().sum::<f64>() / slots as f64).collect();
    let n = of.len() as f64;
    let (mean, Some(relative)) = mean_of(&of)? else { return None };
    let squares: f64 = of.iter().map(|x| (x - mean) * (x - mean)).sum();
    let neighbours: f64 = of.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
    let lag1 = if squares > 0.0 { neighbours / squares } else { 0.0 };
    let mut each = [0.0; BATCHES_MOST];
    each[..batches].copy_from_slice(&of);
    Some(BatchMeans {
        of: each,
        mean,
        relative,
        batches,
        slots,
        lag1,
        // One-sided at 5 %: the coefficient of independent values is about normal with variance 1/n.
        independent: lag1 <= 1.645 / n.sqrt(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// First-order autoregression about 100, started where the stationary series would be.
    fn ar1(phi: f64, n: usize, seed: u64) -> Vec<f64> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        // Twelve uniform draws less six are about normal with variance 1.
        let mut noise = || (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        let mut x = noise() / (1.0 - phi * phi).sqrt();
        let mut next = || {
            x = phi * x + noise();
            100.0 + x
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn intervals_hold_the_mean_about_as_often_as_they_say() {
        for (phi, least) in [(0.0, 0.90), (0.5, 0.88), (0.9, 0.85)] {
            let held = (0..400).filter(|&seed| {
                let means = batch_means(&ar1(phi, 2000, seed)).unwrap();
                (means.mean - 100.0).abs() <= means.relative * means.mean
            });
            let share = held.count() as f64 / 400.0;
            assert!((least..=0.99).contains(&share), "phi {phi}: {share}");
        }
    }

    #[test]
    fn correlated_neighbours_are_noticed() {
        // The memory of this series is longer than any batch.
        let dependent =
            |phi| (0..100).filter(|&s| !batch_means(&ar1(phi, 400, s)).unwrap().independent).count();
        let (long, none) = (dependent(0.999), dependent(0.0));
        assert!(long > 30 && none < 5, "{long} and {none} of 100");
        let fewer = (0..50).filter(|&seed| batch_means(&ar1(0.95, 2000, seed)).unwrap().batches < 32);
        assert!(fewer.count() > 10, "longer batches are taken when short ones are correlated");
    }

    #[test]
    fn a_ramp_is_cut_where_it_ends() {
        for seed in 0..20 {
            let mut series = ar1(0.3, 1000, seed);
            series.iter_mut().take(200).enumerate().for_each(|(i, x)| *x *= i as f64 / 200.0);
            let cut = mser5(&series).expect("most of it is steady");
            assert!((180..320).contains(&cut), "seed {seed}: {cut}");
        }
    }

    #[test]
    fn a_step_is_cut_at_the_step_and_not_in_the_second_half() {
        let mut early = ar1(0.0, 500, 1);
        early.iter_mut().take(100).for_each(|x| *x += 50.0);
        assert!((100..150).contains(&mser5(&early).unwrap()));
        let mut late = ar1(0.0, 500, 1);
        late.iter_mut().take(300).for_each(|x| *x += 50.0);
        assert_eq!(mser5(&late), None, "the series is too short to tell");
    }

    #[test]
    fn what_was_always_steady_loses_little() {
        let kept = (0..200).filter_map(|seed| mser5(&ar1(0.0, 400, seed))).filter(|cut| *cut <= 100);
        assert!(kept.count() > 130);
        assert_eq!(mser5(&[3.0; 100]), Some(0), "a constant is steady from the start");
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(mser5(&[1.0; 49]), None);
        assert_eq!(batch_means(&[1.0; SLOTS_LEAST - 1]), None);
        assert_eq!(batch_means(&[0.0; 100]), None);
        let constant = batch_means(&[5.0; 100]).unwrap();
        assert_eq!((constant.mean, constant.relative, constant.independent), (5.0, 0.0, true));
    }
}
