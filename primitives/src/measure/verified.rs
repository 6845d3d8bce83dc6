//! What following a choice costs: the chosen plan's rate beside those of the others that ran, and how well that is known.

use super::steady::mean_of;

/// A rate, and half the width of its 95 % confidence interval as a share of it, where that is known: by batch means of one run, or
/// by what several runs differ by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Got {
    /// Committed transactions per second.
    pub per_s: f64,
    /// How well it is known.
    pub ci_relative: Option<f64>,
    /// In how many runs.
    pub runs: u32,
}

/// By how much a rate falls short of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Short {
    /// As a share of the other.
    pub share: f64,
    /// Half the width of its 95 % confidence interval, to first order; nothing if too little was counted.
    pub ci: Option<f64>,
    /// In how many runs of each it was found; the fewer of both.
    pub runs: u32,
}

impl Got {
    /// Of one run.
    pub fn once(per_s: f64, ci_relative: Option<f64>) -> Got {
        Got { per_s, ci_relative, runs: 1 }
    }

    /// Of several runs together: on a real machine they differ by more than batches within one of them do. If too little was counted in
    /// one of them to know its rate, theirs is not known either. Nothing of none.
    pub fn mean(runs: &[Got]) -> Option<Got> {
        if let [one] = runs {
            return Some(*one);
        }
        let rates: Vec<f64> = runs.iter().map(|run| run.per_s).collect();
        let (per_s, ci) = mean_of(&rates)?;
        let ci_relative = ci.filter(|_| runs.iter().all(|run| run.ci_relative.is_some()));
        Some(Got { per_s, ci_relative, runs: runs.len() as u32 })
    }

    /// Of each plan that ran, by its name, the mean of its runs.
    pub fn of_plans(ran: impl IntoIterator<Item = (String, Got)>) -> Vec<(String, Got)> {
        let mut plans: Vec<(String, Vec<Got>)> = Vec::new();
        for (name, got) in ran {
            match plans.iter_mut().find(|(known, _)| *known == name) {
                Some((_, runs)) => runs.push(got),
                None => plans.push((name, vec![got])),
            }
        }
        plans.into_iter().filter_map(|(name, runs)| Some((name, Got::mean(&runs)?))).collect()
    }

    /// By how much it falls short of `best`. Where both runs had the same seed, what they share makes the interval too wide rather
    /// than too narrow.
    pub fn short_of(self, best: Got) -> Short {
        let runs = self.runs.min(best.runs);
        if best.per_s <= 0.0 {
            return Short { share: 0.0, ci: None, runs };
        }
        let kept = self.per_s / best.per_s;
        let ci = self.ci_relative.zip(best.ci_relative).map(|(a, b)| kept * a.hypot(b));
        Short { share: 1.0 - kept, ci, runs }
    }
}

impl Short {
    /// Whether it may as well be nothing, by what is known of it.
    pub fn in_doubt(&self) -> bool {
        self.ci.is_some_and(|ci| self.share <= ci)
    }

    /// `1.2 % ± 0.8 %`, and what that means; `percent` writes a share.
    fn told(self, percent: impl Fn(f64) -> String, middle: &str) -> String {
        let share = percent(self.share);
        match self.ci {
            Some(ci) => {
                let by = match self.runs {
                    1 => "batch means of a run each".to_owned(),
                    runs => format!("{runs} runs each, in turns"),
                };
                let apart = if self.in_doubt() { ", so the two are not told apart" } else { "" };
                format!("{share} ± {}{middle} (95 % confidence, {by}){apart}", percent(ci))
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
    /// The fastest of the others, with its name; nothing if none ran as often.
    pub rival: Option<(String, Got)>,
}

impl Verified {
    /// The choice beside those of `others` that ran as often, or once less where a turn was cut short: the fastest of many that ran but once
    /// owes something to luck, and who fell behind then did not run again.
    pub fn new(chosen: Got, others: impl IntoIterator<Item = (String, Got)>) -> Verified {
        let again = |got: &Got| got.runs + 1 >= chosen.runs;
        let rival =
            others.into_iter().filter(|(_, got)| again(got)).max_by(|a, b| a.1.per_s.total_cmp(&b.1.per_s));
        Verified { chosen, rival }
    }

    /// The runs of all plans, each with its plan's name, of which one was `chosen`; nothing if that did not run.
    pub fn of(chosen: &str, ran: impl IntoIterator<Item = (String, Got)>) -> Option<Verified> {
        let means = Got::of_plans(ran).into_iter();
        let (choice, others): (Vec<_>, Vec<_>) = means.partition(|(name, _)| name == chosen);
        Some(Verified::new(choice.first()?.1, others))
    }

    /// The rival, if it was faster than the choice.
    pub fn faster(&self) -> Option<&(String, Got)> {
        self.rival.as_ref().filter(|rival| rival.1.per_s > self.chosen.per_s)
    }

    /// Whether the best of all that ran is known to be that: what it is ahead by is beyond doubt.
    pub fn is_decided(&self) -> bool {
        self.regret().or(self.lead()).is_none_or(|short| short.ci.is_some() && !short.in_doubt())
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
        let got = Got::once;
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
    fn runs_that_differ_more_than_their_batches_do_say_so() {
        let runs = |rates: &[f64]| -> Vec<Got> { rates.iter().map(|r| Got::once(*r, Some(0.001))).collect() };
        let mean = Got::mean(&runs(&[90.0, 110.0, 100.0, 80.0, 120.0])).unwrap();
        // Standard error 7.07 and four degrees of freedom.
        assert!((mean.per_s - 100.0).abs() < 1e-9 && (mean.ci_relative.unwrap() - 0.196).abs() < 1e-3);
        let mut short = runs(&[90.0, 110.0]);
        short[1].ci_relative = None;
        assert_eq!(Got::mean(&short).unwrap().ci_relative, None);
        assert_eq!(Got::mean(&runs(&[90.0])), Some(Got::once(90.0, Some(0.001))));
        assert_eq!(Got::mean(&[]), None);
        let verified = Verified::new(mean, [("farm".to_owned(), Got { per_s: 98.0, ..mean })]);
        let told = verified.told(|share| format!("{:.0} %", 100.0 * share));
        let open = "(95 % confidence, 5 runs each, in turns), so the two are not told apart";
        assert_eq!(told, format!("0 %: the next, farm, got 2 % ± 27 % less {open}"));
        assert!(!verified.is_decided());
    }

    #[test]
    fn who_ran_once_is_no_rival_of_who_ran_again() {
        let once = |per_s| Got::once(per_s, Some(0.001));
        let runs =
            [("tuned", 100.0), ("lucky", 104.0), ("second", 103.0), ("tuned", 102.0), ("second", 99.0)];
        let of = |turns: usize| {
            let ran = runs.iter().chain([("tuned", 98.0), ("second", 98.0)].iter()).take(turns);
            Verified::of("tuned", ran.map(|(name, per_s)| ((*name).to_owned(), once(*per_s)))).unwrap()
        };
        let fastest = |turns| of(turns).faster().map(|(name, got)| (name.clone(), got.runs));
        assert_eq!(fastest(3), Some(("lucky".to_owned(), 1)));
        assert_eq!(fastest(7), None, "{:?}", of(7));
        assert_eq!(
            of(7).rival.map(|(name, got)| (name, got.per_s, got.runs)),
            Some(("second".to_owned(), 100.0, 3))
        );
    }

    #[test]
    fn the_best_says_how_far_behind_the_next_is() {
        let others = [("drtm-h", 97.0, Some(0.001)), ("farm", 98.0, Some(0.004))];
        assert_eq!(
            told((100.0, Some(0.003)), &others),
            "0.0 %: the next, farm, got 2.0 % ± 0.5 % less (95 % confidence, batch means of a run each)"
        );
        let behind = told((97.0, Some(0.03)), &[("farm", 98.0, Some(0.04))]);
        assert!(behind.starts_with("1.0 % ± 4.9 % (") && behind.ends_with("not told apart"), "{behind}");
        let got = |per_s, ci| Got::once(per_s, Some(ci));
        assert!(Verified::new(got(100.0, 0.001), [("farm".to_owned(), got(98.0, 0.001))]).is_decided());
        let unknown = told((100.0, None), &[("farm", 100.0, None)]);
        assert!(unknown.starts_with("0.0 %: the next, farm, got 0.0 % less; too little"), "{unknown}");
        assert_eq!(told((100.0, None), &[]), "0.0 %: no other plan ran");
    }
}
