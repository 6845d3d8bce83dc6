//! Scales and tick marks: which values deserve a line and a number, and where on the paper they fall.

/// How values map to positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Equal steps, from zero.
    Linear,
    /// Equal ratios; ticks at 1, 2, 5 of each decade.
    Log10,
    /// Equal ratios; ticks at the data's own values (powers of two, mostly).
    Log2,
}

/// A mapping of values in `lo..=hi` to positions in `from..=to`, clamped to that range.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    kind: Kind,
    lo: f64,
    hi: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale that shows all of `values` (those that are finite and, on a log scale, positive).
    pub fn fit(kind: Kind, values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Scale {
        let fits = |v: &f64| v.is_finite() && (kind == Kind::Linear || *v > 0.0);
        let (mut lo, mut hi) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.into_iter().filter(fits) {
            lo = lo.min(value);
            hi = hi.max(value);
        }
        if lo > hi {
            (lo, hi) = if kind == Kind::Linear { (0.0, 1.0) } else { (1.0, 10.0) };
        }
        let (lo, hi) = match kind {
            Kind::Linear => {
                let hi = if hi > 0.0 { hi } else { 1.0 };
                (lo.min(0.0), (hi * 1.04).min(f64::MAX))
            }
            // A little air, and never a range of nothing.
            Kind::Log10 => {
                let (lo, hi) = (lo.max(1e-300), hi.max(1e-300));
                let air = (hi / lo).powf(0.06).clamp(1.12, 1e6);
                (lo / air, (hi * air).min(f64::MAX))
            }
            Kind::Log2 if lo == hi => (lo / 2.0, (hi * 2.0).min(f64::MAX)),
            Kind::Log2 => (lo, hi),
        };
        Scale { kind, lo, hi, from, to }
    }

    /// Where `value` falls.
    pub fn at(&self, value: f64) -> f64 {
        let part = match self.kind {
            Kind::Linear => (value - self.lo) / (self.hi - self.lo),
            _ if value <= 0.0 => 0.0,
            _ => (value.ln() - self.lo.ln()) / (self.hi.ln() - self.lo.ln()),
        };
        let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
        self.from + part * (self.to - self.from)
    }

    /// Values worth a tick: about `wanted` of them, at round numbers. [`Kind::Log2`] has none of its own.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        match self.kind {
            Kind::Linear => self.linear_ticks(wanted),
            Kind::Log10 => self.log_ticks(wanted),
            Kind::Log2 => Vec::new(),
        }
    }

    fn linear_ticks(&self, wanted: usize) -> Vec<f64> {
        let raw = (self.hi - self.lo) / wanted.max(1) as f64;
        if !raw.is_finite() || raw <= 0.0 {
            return vec![self.lo];
        }
        let decade = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * decade).into_iter().find(|s| *s >= raw * 0.999);
        let step = step.unwrap_or(10.0 * decade);
        let first = (self.lo / step).ceil();
        (0..=2 * wanted).map(|i| (first + i as f64) * step).filter(|t| *t <= self.hi * 1.0001).collect()
    }

    fn log_ticks(&self, wanted: usize) -> Vec<f64> {
        let decades = self.lo.log10().floor() as i32..=self.hi.log10().ceil() as i32;
        let span = decades.end() - decades.start();
        let marks = |steps: &[f64], every: usize| -> Vec<f64> {
            decades
                .clone()
                .step_by(every)
                .flat_map(|d| steps.iter().map(move |m| m * 10f64.powi(d)))
                .filter(|t| t.is_finite() && *t >= self.lo * 0.999 && *t <= self.hi * 1.001)
                .collect()
        };
        let fine: [&[f64]; 4] =
            [&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0], &[1.0, 2.0, 3.0, 5.0], &[1.0, 2.0, 5.0], &[1.0, 3.0]];
        for steps in fine {
            let ticks = marks(steps, 1);
            if ticks.len() <= wanted {
                if ticks.len() >= 2 {
                    return ticks;
                }
                // So narrow a range is nearly linear.
                let finer = [3, 5, 8].map(|wanted| self.linear_ticks(wanted));
                return finer.into_iter().find(|finer| finer.len() >= 2).unwrap_or(ticks);
            }
        }
        marks(&[1.0], (span as usize / wanted.max(1)).max(1))
    }
}

/// Moves `wanted` positions apart so that no two are nearer than `gap`, keeping their order and staying in
/// `lo..=hi` where there is room. Returns positions in the order given.
pub fn spread(wanted: &[f64], gap: f64, lo: f64, hi: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut placed: Vec<f64> = order.iter().map(|i| wanted[*i]).collect();
    for i in 1..placed.len() {
        placed[i] = placed[i].max(placed[i - 1] + gap);
    }
    let mut limit = hi;
    for place in placed.iter_mut().rev() {
        *place = place.min(limit);
        limit = *place - gap;
    }
    let mut floor = lo;
    for place in &mut placed {
        *place = place.max(floor);
        floor = *place + gap;
    }
    let mut out = vec![0.0; wanted.len()];
    for (slot, place) in order.into_iter().zip(placed) {
        out[slot] = place;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let linear = Scale::fit(Kind::Linear, [0.0, 37.0], 0.0, 100.0);
        assert_eq!(linear.ticks(4), [0.0, 10.0, 20.0, 30.0]);
        let log = Scale::fit(Kind::Log10, [900.0, 40_000.0], 0.0, 100.0);
        assert_eq!(log.ticks(6), [1e3, 2e3, 5e3, 1e4, 2e4, 5e4]);
        // However narrow: one tick alone tells no scale.
        for (lo, hi) in [(12_400.0, 16_800.0), (1.2, 1.4), (5.2, 6.8), (0.9, 1.1), (77.0, 78.0), (2.0, 2.0)] {
            let ticks = Scale::fit(Kind::Log10, [lo, hi], 0.0, 100.0).ticks(5);
            assert!((2..=8).contains(&ticks.len()), "{lo} to {hi}: {ticks:?}");
        }
    }

    #[test]
    fn any_input_gives_a_position_and_some_ticks() {
        let nasty = [0.0, -5.0, 1e308, 1e-308, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE];
        for kind in [Kind::Linear, Kind::Log10, Kind::Log2] {
            for values in [&nasty[..], &nasty[..1], &nasty[2..3], &[]] {
                let scale = Scale::fit(kind, values.iter().copied(), 10.0, 90.0);
                for value in nasty {
                    assert!((10.0..=90.0).contains(&scale.at(value)), "{kind:?} {values:?} {value}");
                }
                assert!(scale.ticks(5).len() <= 12, "{kind:?} {values:?}: {:?}", scale.ticks(5));
            }
        }
    }

    #[test]
    fn labels_move_apart_and_keep_their_order() {
        assert_eq!(spread(&[50.0, 48.0, 10.0], 12.0, 0.0, 60.0), [60.0, 48.0, 10.0]);
        assert_eq!(spread(&[5.0, 5.0], 10.0, 0.0, 100.0), [5.0, 15.0]);
    }
}
