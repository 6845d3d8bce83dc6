//! What accesses meet, which is what rounds of conflicts are about: what follows from it is to be the same again.

use super::chances::Odds;
use super::fixpoint::or_all;

/// What an access meets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Met {
    /// Chances that an access ends its attempt, of any class; and of each class, if any has a number of accesses to each kind of band.
    pub(super) odds: Odds,
    pub(super) own: Vec<Odds>,
    /// How often an access waits for a lock.
    pub(super) waits: f64,
    /// Mean wait of an access for its lock, in nanoseconds, beside the looks.
    pub(super) wait_ns: f64,
    /// The same with the looks, races of readers apart.
    pub(super) held_up_ns: f64,
    /// Looks at a lock beyond the first, of those who wait.
    pub(super) looks: f64,
    /// The same of those who race for a lock that is shared, and what they pause and take longer, in nanoseconds.
    pub(super) race_looks: f64,
    pub(super) race_ns: f64,
    /// The same of a lock that is shared, to leave it.
    pub(super) leaves: f64,
    /// What races for such locks take of a transaction's time, for each commit, in nanoseconds.
    pub(super) raced_ns: f64,
    /// How long an access races for a lock that is shared, in nanoseconds.
    pub(super) entering_ns: f64,
    /// How often who has failed fails again of the same holder.
    pub(super) again: f64,
    /// Where ages decide, for how long an access is held up of attempts that commit: of first ones, and of later ones.
    pub(super) done_ns: [f64; 2],
}

/// Its times and counts.
const AMOUNTS: usize = 12;

impl Met {
    /// The odds of the class at this place.
    pub(super) fn of(&self, class: usize) -> &Odds {
        self.own.get(class).unwrap_or(&self.odds)
    }

    /// How many times as often as the mean access one of a class with these odds meets somebody.
    pub(super) fn meets(&self, odds: &Odds) -> f64 {
        if self.odds.meets > 0.0 { odds.meets / self.odds.meets } else { 1.0 }
    }

    /// Looks of an access of such a class beyond the first, and for how long it waits beside them.
    pub(super) fn looks_and_wait(&self, odds: &Odds) -> (f64, f64) {
        let meets = self.meets(odds);
        (meets * self.looks + self.race_looks, meets * self.wait_ns + self.race_ns)
    }

    /// How far two are apart, relative where they are times.
    pub(super) fn distance(&self, other: &Met) -> f64 {
        let relative = |a: f64, b: f64| or_all((a - b).abs() / a.abs().max(b.abs()).max(1.0));
        let own = (0..self.own.len().max(other.own.len())).map(|at| self.of(at).distance(other.of(at)));
        own.fold(self.odds.distance(&other.odds), f64::max)
            .max(relative(self.wait_ns, other.wait_ns))
            .max(or_all((self.waits - other.waits).abs()))
            .max(relative(self.held_up_ns, other.held_up_ns))
            .max(relative(self.looks, other.looks))
            .max(relative(self.race_looks, other.race_looks))
            .max(relative(self.race_ns, other.race_ns))
            .max(relative(self.leaves, other.leaves))
            .max(relative(self.raced_ns, other.raced_ns))
            .max(or_all((self.again - other.again).abs()))
            .max(relative(self.entering_ns, other.entering_ns))
            .max(relative(self.done_ns[0], other.done_ns[0]))
            .max(relative(self.done_ns[1], other.done_ns[1]))
    }

    /// Its numbers in an order that is always the same: chances that accesses fail, once and in each of more attempts, of as many
    /// classes as `like` has; then times in nanoseconds, and counts.
    pub(super) fn numbers(&self, like: &Met) -> Vec<f64> {
        let Met {
            waits,
            wait_ns,
            held_up_ns,
            looks,
            race_looks,
            race_ns,
            leaves,
            raced_ns,
            entering_ns,
            again,
            done_ns,
            ..
        } = *self;
        let [first, later] = done_ns;
        let amounts = [
            waits,
            wait_ns,
            held_up_ns,
            looks,
            leaves,
            again,
            raced_ns,
            entering_ns,
            first,
            later,
            race_looks,
            race_ns,
        ];
        let mut numbers = Vec::with_capacity(Odds::NUMBERS * (1 + like.own.len()) + amounts.len());
        self.odds.failing(&mut numbers);
        (0..like.own.len()).for_each(|class| self.of(class).failing(&mut numbers));
        numbers.extend(amounts);
        numbers
    }

    /// Sizes from which on logarithms of its numbers count.
    pub(super) fn small(&self) -> impl Fn(usize) -> f64 {
        let chances = Odds::NUMBERS * (1 + self.own.len());
        move |n| match n.checked_sub(chances) {
            None => 1e-3,
            Some(0 | 3 | 4 | 5 | 10) => 1e-2,
            Some(_) => 100.0,
        }
    }

    /// From its numbers.
    pub(super) fn of_numbers(numbers: &[f64]) -> Met {
        let (odds, amounts) = numbers.split_at(numbers.len() - AMOUNTS);
        let mut odds = odds.chunks_exact(Odds::NUMBERS).map(Odds::of_failing);
        let &[
            waits,
            wait_ns,
            held_up_ns,
            looks,
            leaves,
            again,
            raced_ns,
            entering_ns,
            first,
            later,
            race_looks,
            race_ns,
        ] = amounts
        else {
            unreachable!()
        };
        Met {
            odds: odds.next().unwrap_or_default(),
            own: odds.collect(),
            waits,
            wait_ns,
            held_up_ns,
            looks,
            race_looks,
            race_ns,
            leaves,
            raced_ns,
            entering_ns,
            again,
            done_ns: [first, later],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of which each is its own come back where they were, those of classes too.
    #[test]
    fn what_is_met_is_its_numbers() {
        let like = Met { own: vec![Odds::default(); 2], ..Met::default() };
        let count = like.numbers(&like).len();
        let numbers: Vec<f64> = (0..count).map(|n| (n + 1) as f64 / (count + 1) as f64).collect();
        let met = Met::of_numbers(&numbers);
        assert_eq!(
            (met.own.len(), met.waits, met.race_ns),
            (2, numbers[count - AMOUNTS], numbers[count - 1])
        );
        for (back, number) in met.numbers(&like).into_iter().zip(&numbers) {
            assert!((back - number).abs() < 1e-12, "{numbers:?}");
        }
        assert_eq!(Met::of_numbers(&met.numbers(&like)).distance(&met), 0.0);
        // Times count from a hundred nanoseconds on, chances and counts from far less.
        let small = like.small();
        let of = |name: fn(&mut Met) -> &mut f64| {
            let mut other = like.clone();
            *name(&mut other) = 1.0;
            small(other.numbers(&like).iter().position(|number| *number == 1.0).expect("it is among them"))
        };
        let times: [fn(&mut Met) -> &mut f64; 6] = [
            |met| &mut met.wait_ns,
            |met| &mut met.held_up_ns,
            |met| &mut met.raced_ns,
            |met| &mut met.entering_ns,
            |met| &mut met.done_ns[0],
            |met| &mut met.done_ns[1],
        ];
        assert_eq!(times.map(of), [100.0; 6]);
        let counts: [fn(&mut Met) -> &mut f64; 4] =
            [|met| &mut met.waits, |met| &mut met.looks, |met| &mut met.leaves, |met| &mut met.again];
        assert_eq!(counts.map(of), [1e-2; 4]);
        assert_eq!(of(|met| &mut met.odds.write), 1e-3);
    }
}
