//! What following a choice costs: the chosen plan's rate beside those of the others that ran, and how well that is known.

/// A rate, and half the width of its 95 % confidence interval as a share of it, where that is known: by batch means of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Got {
    /// Committed transactions per second.
    pub per_s: f64,
    /// How well it is known.
    pub ci_relative: Option<f64>,
}

/// By how much a rate falls short of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Short {
    /// As a share of the other.
    pub share: f64,
    /// Half the width of its 95 % confidence interval, to first order; nothing if too little was counted.
    pub ci: Option<f64>,
}

impl Got {
    /// By how much it falls short of `best`. Where both runs had the same seed, what they share makes the interval too wide rather
    /// than too narrow.
    pub fn short_of(self, best: Got) -> Short {
        if best.per_s <= 0.0 {
            return Short { share: 0.0, ci: None };
        }
        let kept = self.per_s / best.per_s;
        let ci = self.ci_relative.zip(best.ci_relative).map(|(a, b)| kept * a.hypot(b));
        Short { share: 1.0 - kept, ci }
    }
}

impl Short {
    /// `1.2 % ± 0.8 %`, and what that means; `percent` writes a share.
    fn told(self, percent: impl Fn(f64) -> String, middle: &str) -> String {
        let share = percent(self.share);
        match self.ci {
            Some(ci) => {
                format!("{share} ± {}{middle} (95 % confidence, batch means of a run each)", percent(ci))
            }
            None => format!("{share}{middle}; too little was counted to say how well that is known"),
        }
    }
}

/// A choice beside the others that ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// The choice when run.
    pub chosen: Got,
    /// The fastest of the others, with its name; nothing if none ran.
    pub rival: Option<(String, Got)>,
}

impl Verified {
    /// The choice beside `others`.
    pub fn new(chosen: Got, others: impl IntoIterator<Item = (String, Got)>) -> Verified {
        let rival = others.into_iter().max_by(|a, b| a.1.per_s.total_cmp(&b.1.per_s));
        Verified { chosen, rival }
    }

    /// The rival, if it was faster than the choice.
    pub fn faster(&self) -> Option<&(String, Got)> {
        self.rival.as_ref().filter(|rival| rival.1.per_s > self.chosen.per_s)
    }

    /// The rate of the best of all that ran.
    pub fn best(&self) -> Got {
        self.faster().map_or(self.chosen, |rival| rival.1)
    }

    /// What the choice loses; nothing if it is the best.
    pub fn regret(&self) -> Option<Short> {
        self.faster().map(|rival| self.chosen.short_of(rival.1))
    }

    /// By how much the next falls short of the choice, where that is the best and another ran.
    pub fn lead(&self) -> Option<Short> {
        match self.faster() {
            Some(_) => None,
            None => self.rival.as_ref().map(|rival| rival.1.short_of(self.chosen)),
        }
    }

    /// The regret and how well it is known; of the best, how far behind the next is. `percent` writes a share.
    pub fn told(&self, percent: impl Fn(f64) -> String) -> String {
        match (self.regret(), self.lead(), &self.rival) {
            (Some(regret), ..) => regret.told(percent, ""),
            (None, Some(lead), Some((next, _))) => {
                let none = percent(0.0);
                let next = if next.contains(' ') { format!("“{next}”") } else { next.clone() };
                format!("{none}: the next, {next}, got {}", lead.told(percent, " less"))
            }
            _ => format!("{}: no other plan ran", percent(0.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(chosen: (f64, Option<f64>), others: &[(&str, f64, Option<f64>)]) -> String {
        let got = |per_s, ci_relative| Got { per_s, ci_relative };
        let others = others.iter().map(|(name, per_s, ci)| ((*name).to_owned(), got(*per_s, *ci)));
        let verified = Verified::new(got(chosen.0, chosen.1), others);
        verified.told(|share| format!("{:.1} %", 100.0 * share))
    }

    #[test]
    fn a_regret_says_how_well_it_is_known() {
        let farm = ("farm", 100.0, Some(0.004));
        let others = [("drtm-h", 97.0, Some(0.001)), farm];
        assert_eq!(
            told((98.0, Some(0.003)), &others),
            "2.0 % ± 0.5 % (95 % confidence, batch means of a run each)"
        );
        assert!(told((98.0, None), &[farm]).starts_with("2.0 %; too little was counted"));
    }

    #[test]
    fn the_best_says_how_far_behind_the_next_is() {
        let others = [("drtm-h", 97.0, Some(0.001)), ("farm", 98.0, Some(0.004))];
        assert_eq!(
            told((100.0, Some(0.003)), &others),
            "0.0 %: the next, farm, got 2.0 % ± 0.5 % less (95 % confidence, batch means of a run each)"
        );
        let unknown = told((100.0, None), &[("farm", 100.0, None)]);
        assert!(unknown.starts_with("0.0 %: the next, farm, got 0.0 % less; too little"), "{unknown}");
        assert_eq!(told((100.0, None), &[]), "0.0 %: no other plan ran");
    }
}
