//! The fit: damped least squares over bounded numbers, with a weak pull to where they started.
//!
//! Levenberg–Marquardt with a finite-difference Jacobian, because a simulation answers smoothly enough and each answer is
//! dear: one round costs one evaluation per number that matters, where a simplex search takes hundreds. Numbers are
//! moved on a logarithmic scale, and errors are relative.
//!
//! The pull keeps a number where it was if no target depends on it. How far the targets rather than the pull decide is
//! a number's *resolution* (the diagonal of the model resolution matrix; Menke, Geophysical Data Analysis, chapter 4):
//! 1 where they decide, 0 where they say nothing. Of ten times one number plus another the first has a resolution near 1 though
//! nothing but the sum shows. That tells its *inflation*: by how much its variance grows because the others are not known either (the variance
//! inflation factor; Marquardt, Technometrics 12, 1970).
//!
//! Pure and deterministic: it knows nothing of profiles or simulators.

/// A number to fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Free {
    /// Where it starts.
    pub start: f64,
    /// Bounds.
    pub low: f64,
    /// Bounds.
    pub high: f64,
}

/// Bounds that are so many times apart are as those that begin at zero.
const WIDE: f64 = 1_000.0;

impl Free {
    /// What is added before the logarithm is taken: bounds may begin at zero, or so near it that from there a number would hardly move by
    /// factors of itself.
    fn shift(&self) -> f64 {
        if self.low * WIDE > self.high { 0.0 } else { self.high / 10.0 }
    }

    fn log(&self, value: f64) -> f64 {
        (value + self.shift()).ln()
    }

    fn value(&self, log: f64) -> f64 {
        // Logarithm and back is not exact, and what was not moved must not seem to be.
        if log == self.log(self.start) {
            return self.start;
        }
        (log.exp() - self.shift()).clamp(self.low, self.high)
    }
}

/// How to fit.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most rounds; each costs an evaluation per number, and a few.
    pub rounds: usize,
    /// Relative error below which a target counts as met: as precise as a short simulation is.
    pub noise: f64,
    /// How far the start is trusted, as a relative error.
    pub trust: f64,
    /// Step of the Jacobian, on the logarithmic scale.
    pub step: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { rounds: 6, noise: 0.01, trust: 0.3, step: 0.1 }
    }
}

/// Where a fit ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The numbers.
    pub values: Vec<f64>,
    /// Relative errors of the targets at the start.
    pub before: Vec<f64>,
    /// And at the end.
    pub after: Vec<f64>,
    /// How far the targets decide each number, 0 to 1, where the search ended, taken to be as good as the fit met them. After [`look`],
    /// on the side where they decide it less.
    pub resolution: Vec<f64>,
    /// By how much each number's variance is larger than if all others were known; 1 where it shows by itself. After [`look`], on the side
    /// where it is more.
    pub inflation: Vec<f64>,
    /// The number that each is mostly confused with, where it is with any.
    pub partner: Vec<Option<usize>>,
    /// By how much each number may be off: its standard error, relative, if the others may be anywhere within their bounds. After [`look`],
    /// on the side where it is more.
    pub error: Vec<f64>,
    /// The same at whichever round it was most. What hides behind a slower stage shows until it is fast enough to hide:
    /// the targets bound it.
    pub seen: Vec<f64>,
    /// By target and number: relative change of the target per relative change of the number.
    pub influence: Vec<Vec<f64>>,
    /// Evaluations it took.
    pub evaluations: usize,
    /// It was ended from outside; the values are the best so far.
    pub interrupted: bool,
}

/// What an evaluation may say instead of errors.
#[derive(Debug)]
pub enum Halt<E> {
    /// Stop here, keep the best so far.
    Interrupted,
    /// It cannot be evaluated.
    Failed(E),
}

/// In one round of so many, every number is tried on every target; in the others only on those that it moved before.
const LOOK: usize = 3;

/// Influence from which a number counts as having moved a target.
const TOUCHES: f64 = 0.02;

/// Most steps that a round tries.
pub const STEPS: usize = 5;

/// Root of the mean square.
pub fn rms(errors: &[f64]) -> f64 {
    (errors.iter().map(|e| e * e).sum::<f64>() / errors.len().max(1) as f64).sqrt()
}

/// Moves `free` until the relative errors that `evaluate` gives are least. It is given the values and which errors are
/// asked for, all if none are named; what it says of the others is not looked at. `told` hears of the start, as round 0, and of every round: its number, the
/// root mean square error, the evaluations so far.
///
/// # Errors
/// What `evaluate` failed with. Being interrupted before the start was evaluated gives the start.
pub fn fit<E>(
    free: &[Free],
    settings: &Settings,
    mut evaluate: impl FnMut(&[f64], &[bool]) -> Result<Vec<f64>, Halt<E>>,
    mut told: impl FnMut(usize, f64, usize),
) -> Result<Fit, E> {
    let start: Vec<f64> = free.iter().map(|f| f.log(f.start)).collect();
    let values = |logs: &[f64]| -> Vec<f64> { free.iter().zip(logs).map(|(f, l)| f.value(*l)).collect() };
    let mut fit = Fit {
        values: free.iter().map(|f| f.start).collect(),
        before: Vec::new(),
        after: Vec::new(),
        resolution: vec![0.0; free.len()],
        inflation: vec![1.0; free.len()],
        partner: vec![None; free.len()],
        error: vec![f64::INFINITY; free.len()],
        seen: vec![0.0; free.len()],
        influence: Vec::new(),
        evaluations: 1,
        interrupted: false,
    };
    // `Ok(None)`: interrupted.
    let mut asked = |logs: &[f64], rows: &[bool]| match evaluate(&values(logs), rows) {
        Ok(errors) => Ok(Some(errors)),
        Err(Halt::Interrupted) => Ok(None),
        Err(Halt::Failed(error)) => Err(error),
    };
    let Some(first) = asked(&start, &[])? else { return Ok(Fit { interrupted: true, ..fit }) };
    (fit.before, fit.after) = (first.clone(), first);
    told(0, rms(&fit.after), fit.evaluations);
    let pull = (settings.noise / settings.trust).powi(2);
    let cost = |errors: &[f64], logs: &[f64]| {
        errors.iter().map(|e| e * e).sum::<f64>()
            + pull * logs.iter().zip(&start).map(|(l, s)| (l - s) * (l - s)).sum::<f64>()
    };
    let mut logs = start.clone();
    let mut damping = 1e-3;
    // Which numbers matter is found out in the first round, and again in the last look.
    let mut matters = vec![true; free.len()];
    // A round that looked at a part of the targets and did not get on has not tried all there is: it is enough where they are met.
    let mut stuck = false;
    'rounds: for round in 1..=settings.rounds {
        let mut jacobian = vec![vec![0.0; free.len()]; fit.after.len()];
        let whole = round % LOOK == 1 || stuck;
        for (column, number) in free.iter().enumerate().filter(|(c, _)| matters[*c]) {
            let mut moved = logs.clone();
            // Inwards, where a bound is near.
            let up = logs[column] + settings.step <= number.log(number.high);
            moved[column] += if up { settings.step } else { -settings.step };
            moved[column] = moved[column].max(number.log(number.low));
            let by = moved[column] - logs[column];
            if by == 0.0 {
                continue;
            }
            let touched: Vec<bool> = match whole {
                true => Vec::new(),
                false => fit.influence.iter().map(|row| row[column].abs() > TOUCHES).collect(),
            };
            let Some(errors) = asked(&moved, &touched)? else {
                fit.interrupted = true;
                break 'rounds;
            };
            fit.evaluations += 1;
            for (at, (there, here)) in errors.iter().zip(&fit.after).enumerate() {
                if touched.is_empty() || touched[at] {
                    jacobian[at][column] = (there - here) / by;
                }
            }
        }
        let gain = |column: usize| jacobian.iter().map(|row| row[column] * row[column]).sum::<f64>().sqrt();
        if round == 1 {
            // A number that moves no target by a hundredth of its own change is left where it is.
            matters = (0..free.len()).map(|c| gain(c) > 0.01).collect();
        }
        for (most, now) in fit.seen.iter_mut().zip(resolution(&jacobian, pull)) {
            *most = most.max(now);
        }
        fit.influence.clone_from(&jacobian);
        let mut better = false;
        for _ in 0..STEPS {
            let Some(step) = step(&jacobian, &fit.after, &logs, &start, pull, damping) else { break };
            let next: Vec<f64> = logs
                .iter()
                .zip(&step)
                .zip(free)
                // A factor of two at a time: the model is not linear further out.
                .map(|((l, s), f)| (l + s.clamp(-0.7, 0.7)).clamp(f.log(f.low), f.log(f.high)))
                .collect();
            let Some(errors) = asked(&next, &[])? else {
                fit.interrupted = true;
                break 'rounds;
            };
            fit.evaluations += 1;
            let (old, new) = (cost(&fit.after, &logs), cost(&errors, &next));
            if new < old {
                // Less is what noise gives, and costs another round.
                better = old - new > 0.05 * old;
                (logs, fit.after) = (next, errors);
                damping = (damping / 10.0_f64).max(1e-9);
                break;
            }
            damping = (damping * 10.0).max(1e-4);
        }
        told(round, rms(&fit.after), fit.evaluations);
        let left = rms(&fit.after);
        stuck = !better && !whole && left > settings.noise;
        if !(better || stuck) || left < 0.7 * settings.noise {
            break;
        }
    }
    fit.values = values(&logs);
    if !fit.influence.is_empty() {
        let influence = fit.influence.clone();
        judge(&mut fit, free, settings, &influence, &influence);
    }
    Ok(fit)
}

/// Where the search ended, tries the numbers in `at` both ways. A number at the edge of where it hides shows on one side
/// only, and the search knows the one on which it last tried: of both, the one that tells less counts from here on. The others keep the derivatives
/// of the search, and `fit.values` and `fit.after` are what is looked at.
///
/// # Errors
/// What `evaluate` failed with. Being interrupted leaves what the search said.
pub fn look<E>(
    fit: &mut Fit,
    at: &[usize],
    free: &[Free],
    settings: &Settings,
    mut evaluate: impl FnMut(&[f64], &[bool]) -> Result<Vec<f64>, Halt<E>>,
) -> Result<(), E> {
    if fit.influence.is_empty() {
        return Ok(());
    }
    let mut sides = [fit.influence.clone(), fit.influence.clone()];
    for &column in at {
        let number = free[column];
        let here = number.log(fit.values[column]);
        for (side, by) in sides.iter_mut().zip([settings.step, -settings.step]) {
            let there = (here + by).clamp(number.log(number.low), number.log(number.high));
            // So near a bound, which is known to hold, there is no other side.
            if (there - here).abs() < settings.step / 2.0 {
                continue;
            }
            let mut values = fit.values.clone();
            values[column] = number.value(there);
            let errors = match evaluate(&values, &[]) {
                Ok(errors) => errors,
                Err(Halt::Interrupted) => {
                    fit.interrupted = true;
                    return Ok(());
                }
                Err(Halt::Failed(error)) => return Err(error),
            };
            fit.evaluations += 1;
            for (row, (moved, still)) in side.iter_mut().zip(errors.iter().zip(&fit.after)) {
                row[column] = (moved - still) / (there - here);
            }
        }
    }
    let [up, down] = sides;
    judge(fit, free, settings, &up, &down);
    // What a number moves on either side is what it moves.
    for (row, (up, down)) in fit.influence.iter_mut().zip(up.iter().zip(&down)) {
        for (most, (up, down)) in row.iter_mut().zip(up.iter().zip(down)) {
            *most = if up.abs() < down.abs() { *down } else { *up };
        }
    }
    Ok(())
}

/// What the derivatives on both sides tell of each number: the weaker side counts.
fn judge(fit: &mut Fit, free: &[Free], settings: &Settings, up: &[Vec<f64>], down: &[Vec<f64>]) {
    // Targets that the model misses by more than their noise are no better known than that.
    let noise = settings.noise.max(rms(&fit.after));
    let pulls = vec![(noise / settings.trust).powi(2); free.len()];
    // Whoever could do a number's work may be anywhere within its bounds, not only near where it started.
    let width = |f: &Free| (f.log(f.high) - f.log(f.low)).max(1e-6);
    let ridges: Vec<f64> = free.iter().map(|f| (settings.noise / width(f)).powi(2)).collect();
    for (at, number) in free.iter().enumerate() {
        let of_logarithm = (fit.values[at] + number.shift()) / fit.values[at];
        let near = [true, false].map(|upwards| hidden(up, down, &pulls, at, upwards));
        let far = [true, false].map(|upwards| hidden(up, down, &ridges, at, upwards));
        fit.resolution[at] =
            near.iter().map(|h| (1.0 - pulls[at] / h.left).clamp(0.0, 1.0)).fold(1.0, f64::min);
        fit.error[at] = far.iter().map(|h| of_logarithm * noise / h.left.sqrt()).fold(0.0, f64::max);
        let inflation = |h: &Hidden| (h.alone / h.left).max(1.0);
        let [above, below] = &far;
        let most = if inflation(above) < inflation(below) { below } else { above };
        (fit.inflation[at], fit.partner[at]) = (inflation(most), most.partner);
    }
}

/// How well a number can hide.
struct Hidden {
    /// What is left to see of its move if the others hide it.
    left: f64,
    /// If none of them moves.
    alone: f64,
    /// Who does most of the hiding.
    partner: Option<usize>,
}

/// Moves number `at` by one, up or down, and the others so that least of it is left to see: the sum of squares of what the targets change by and
/// of all ways, weighted with `ridges`. Each of the others has the derivatives of the side to which it goes.
fn hidden(up: &[Vec<f64>], down: &[Vec<f64>], ridges: &[f64], at: usize, upwards: bool) -> Hidden {
    let n = ridges.len();
    let mut least = Hidden { left: f64::INFINITY, alone: f64::INFINITY, partner: None };
    // Which way the others go is not known before it is solved: begin with all one way, and turn those that went the other. Of what is
    // met on the way the least counts, also where the turning comes to no end: rather too little is believed than too much.
    for begin in [true, false] {
        let mut ways = vec![begin; n];
        ways[at] = upwards;
        for _ in 0..2 * n {
            let mix = |(up, down): (&Vec<f64>, &Vec<f64>)| -> Vec<f64> {
                (0..n).map(|i| if ways[i] { up[i] } else { down[i] }).collect()
            };
            let mut matrix = normal(&up.iter().zip(down).map(mix).collect::<Vec<_>>());
            matrix.iter_mut().zip(ridges).enumerate().for_each(|(i, (row, ridge))| row[i] += ridge);
            let diagonal: Vec<f64> = (0..n).map(|i| matrix[i][i]).collect();
            let unit = (0..n).map(|i| if i == at { 1.0 } else { 0.0 }).collect();
            // A column of the inverse: the others' best answers to a move, and one over what they leave of it.
            let Some(column) = solve(matrix, unit) else { break };
            let by = if upwards { column[at] } else { -column[at] };
            let moves: Vec<f64> = column.iter().map(|x| x / by).collect();
            if 1.0 / column[at] < least.left {
                let work = |i: usize| moves[i].abs() * diagonal[i].sqrt();
                let others = (0..n).filter(|&i| i != at && work(i) > 1e-6 * work(at));
                let partner = others.max_by(|&a, &b| work(a).total_cmp(&work(b)));
                least = Hidden { left: 1.0 / column[at], alone: diagonal[at], partner };
            }
            let turning = |i: usize| i != at && moves[i].abs() > 1e-3 && ways[i] != (moves[i] > 0.0);
            let turned: Vec<usize> = (0..n).filter(|&i| turning(i)).collect();
            if turned.is_empty() {
                break;
            }
            turned.into_iter().for_each(|i| ways[i] = !ways[i]);
        }
    }
    least
}

/// JᵀJ.
fn normal(jacobian: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let n = jacobian.first().map_or(0, Vec::len);
    let product = |i: usize, j: usize| jacobian.iter().map(|row| row[i] * row[j]).sum::<f64>();
    (0..n).map(|i| (0..n).map(|j| product(i, j)).collect()).collect()
}

/// The step that lowers the cost most if it were quadratic, damped.
fn step(
    jacobian: &[Vec<f64>],
    errors: &[f64],
    logs: &[f64],
    start: &[f64],
    pull: f64,
    damping: f64,
) -> Option<Vec<f64>> {
    let mut matrix = normal(jacobian);
    let scale = (0..logs.len()).map(|i| matrix[i][i]).fold(0.0, f64::max);
    for (i, row) in matrix.iter_mut().enumerate() {
        row[i] += pull + damping * (row[i] + 1e-6 * scale);
    }
    let slope = (0..logs.len()).map(|i| {
        let data: f64 = jacobian.iter().zip(errors).map(|(row, e)| row[i] * e).sum();
        -(data + pull * (logs[i] - start[i]))
    });
    solve(matrix, slope.collect())
}

/// The diagonal of (JᵀJ + pull)⁻¹ JᵀJ.
fn resolution(jacobian: &[Vec<f64>], pull: f64) -> Vec<f64> {
    let data = normal(jacobian);
    let one = |i: usize| {
        let mut matrix = data.clone();
        matrix.iter_mut().enumerate().for_each(|(k, row)| row[k] += pull);
        let column = data.iter().map(|row| row[i]).collect();
        solve(matrix, column).map_or(0.0, |x| x[i].clamp(0.0, 1.0))
    };
    (0..data.len()).map(one).collect()
}

/// Gaussian elimination with row pivots; `None` if the matrix is singular.
fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Option<Vec<f64>> {
    let n = b.len();
    for k in 0..n {
        let pivot = (k..n).max_by(|i, j| a[*i][k].abs().total_cmp(&a[*j][k].abs()))?;
        if a[pivot][k].abs() < 1e-300 {
            return None;
        }
        a.swap(k, pivot);
        b.swap(k, pivot);
        for i in k + 1..n {
            let factor = a[i][k] / a[k][k];
            let (above, below) = a.split_at_mut(i);
            for (x, y) in below[0][k..].iter_mut().zip(&above[k][k..]) {
                *x -= factor * y;
            }
            b[i] -= factor * b[k];
        }
    }
    for k in (0..n).rev() {
        let known: f64 = (k + 1..n).map(|j| a[k][j] * b[j]).sum();
        b[k] = (b[k] - known) / a[k][k];
    }
    Some(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates limited by the slower of two stages, a latency that is a sum: the shape of what simulators answer.
    fn model(v: &[f64]) -> Vec<f64> {
        vec![1e3 / (v[0] + v[1]), 1e3 / v[0].max(4.0), 4.0 * v[2] + v[0] + v[1], 1e3 / (v[3] + 20.0)]
    }

    fn errors(got: &[f64], want: &[f64]) -> Vec<f64> {
        got.iter().zip(want).map(|(g, w)| g / w - 1.0).collect()
    }

    fn free(start: f64) -> Free {
        Free { start, low: start / 3.0, high: start * 3.0 }
    }

    fn fitted(start: &[f64], want: &[f64]) -> Fit {
        let free: Vec<Free> = start.iter().map(|&s| free(s)).collect();
        let evaluate = |v: &[f64], _: &[bool]| Ok::<_, Halt<()>>(errors(&model(v), want));
        fit(&free, &Settings { rounds: 20, noise: 0.002, ..Settings::default() }, evaluate, |_, _, _| ())
            .unwrap()
    }

    #[test]
    fn what_the_targets_pin_is_found_from_far_away() {
        let truth = [11.0, 12.0, 126.0, 65.0];
        let fit = fitted(&[7.0, 20.0, 200.0, 40.0], &model(&truth));
        for (got, want) in fit.values.iter().zip(truth) {
            assert!((got / want - 1.0).abs() < 0.01, "{:?}", fit.values);
        }
        assert!(fit.resolution.iter().all(|r| *r > 0.95), "{:?}", fit.resolution);
        assert!(rms(&fit.after) < 1e-3 && rms(&fit.before) > 0.1);
        assert!(fit.evaluations < 80, "{}", fit.evaluations);
    }

    /// The second number hides behind the first until that has come down, which it has after a round that tries all there is. The next one
    /// looks at what moved before, gets nowhere, and is not the last.
    #[test]
    fn a_round_that_tried_a_part_and_got_nowhere_is_not_the_last() {
        let free = [4.0, 2.0].map(|start| Free { start, low: 0.5, high: 8.0 });
        let asked = std::cell::RefCell::new(Vec::new());
        let evaluate = |v: &[f64], rows: &[bool]| {
            asked.borrow_mut().push(rows.to_vec());
            Ok::<_, Halt<()>>(vec![v[0] - 1.0, v[0].max(v[1]) - 1.0, 0.1 * (v[1] / 2.0 - 1.0)])
        };
        let fit = fit(&free, &Settings::default(), evaluate, |_, _, _| ()).unwrap();
        assert!(asked.borrow().contains(&vec![false, false, true]), "a round that tried a part");
        assert!((fit.values[1] / 1.05 - 1.0).abs() < 0.1, "{:?}: {:?}", fit.values, fit.after);
    }

    /// A delay that is a small part of a latency, from next to nothing.
    #[test]
    fn a_number_is_found_from_either_end_of_wide_bounds() {
        for start in [0.001, 0.1, 1.0, 5.0, 1_000.0] {
            let free = [Free { start, low: 0.001, high: 1_000.0 }];
            let evaluate =
                |v: &[f64], _: &[bool]| Ok::<_, Halt<()>>(vec![(4.0 * v[0] + 1_200.0) / 1_520.0 - 1.0]);
            let fit = fit(&free, &Settings::default(), evaluate, |_, _, _| ()).unwrap();
            assert!((fit.values[0] / 80.0 - 1.0).abs() < 0.05, "from {start}: {:?}", fit.values);
        }
    }

    #[test]
    fn what_no_target_shows_stays_and_says_so() {
        // Only the sum of the first two shows, and the last not at all.
        let free = [free(10.0), free(10.0), free(5.0)];
        let evaluate = |v: &[f64], _: &[bool]| Ok::<_, Halt<()>>(vec![(v[0] + v[1]) / 26.0 - 1.0]);
        let fit = fit(&free, &Settings::default(), evaluate, |_, _, _| ()).unwrap();
        assert!((fit.values[0] + fit.values[1] - 26.0).abs() < 0.2, "{:?}", fit.values);
        assert!((fit.values[0] - fit.values[1]).abs() < 0.5, "the sum is shared as it was");
        assert_eq!(fit.values[2], 5.0);
        assert!(fit.resolution[2] == 0.0 && (0.3..0.7).contains(&fit.resolution[0]), "{:?}", fit.resolution);
    }

    #[test]
    fn who_shows_only_in_a_sum_is_told_from_who_shows_alone() {
        // Ten times the first plus the second, a unit of the third, and the fourth beside a sum of itself and two more.
        let free = [10.0, 10.0, 5.0, 10.0, 10.0, 10.0].map(free);
        let evaluate = |v: &[f64], _: &[bool]| {
            let sum = 8.0 * v[3] + v[4] + v[5];
            Ok::<_, Halt<()>>(vec![(10.0 * v[0] + v[1]) / 120.0 - 1.0, v[2] / 6.0 - 1.0, sum / 110.0 - 1.0])
        };
        let settings = Settings { rounds: 20, ..Settings::default() };
        let fit = fit(&free, &settings, evaluate, |_, _, _| ()).unwrap();
        assert!(
            fit.resolution[0] > 0.9 && fit.resolution[2] > 0.9 && fit.resolution[3] > 0.9,
            "{:?}",
            fit.resolution
        );
        assert!(fit.inflation[0] > 100.0 && fit.inflation[3] > 100.0, "{:?}", fit.inflation);
        assert!(fit.inflation[2] < 1.01, "{:?}", fit.inflation);
        assert_eq!(fit.partner[..3], [Some(1), Some(0), None]);
        assert!(matches!(fit.partner[3], Some(4 | 5)));
    }

    /// A fit that ends where it starts, before and after it was looked at both ways.
    fn looked(model: fn(&[f64]) -> Vec<f64>, at: &[f64]) -> (Fit, Fit) {
        let free: Vec<Free> = at.iter().map(|&v| free(v)).collect();
        let want = model(at);
        let evaluate = |v: &[f64], _: &[bool]| Ok::<_, Halt<()>>(errors(&model(v), &want));
        let before = fit(&free, &Settings::default(), evaluate, |_, _, _| ()).unwrap();
        assert_eq!(before.values, at);
        let mut after = before.clone();
        let all: Vec<usize> = (0..free.len()).collect();
        look(&mut after, &all, &free, &Settings::default(), evaluate).unwrap();
        assert_eq!(after.evaluations, before.evaluations + 2 * free.len());
        (before, after)
    }

    #[test]
    fn what_shows_on_one_side_only_is_not_known() {
        // The second stage is as slow as the first: a faster first one would not show.
        let (before, after) = looked(|v| vec![1e3 / v[0].max(10.0), 1e3 / v[1]], &[10.0, 10.0]);
        assert!(before.resolution[0] > 0.95 && before.error[0] < 0.05, "{before:?}");
        assert!(after.resolution[0] < 0.05 && after.error[0] > 0.5, "{after:?}");
        assert!(after.resolution[1] > 0.95 && after.error[1] < 0.02, "{after:?}");
        assert!(after.influence[0][0].abs() > 0.5, "it moves its target all the same");
    }

    #[test]
    fn others_hide_a_number_on_the_side_to_which_they_go() {
        // The second shows by itself only when it grows. So it makes up, unseen, for a first that grows, not for one that shrinks.
        let (before, after) = looked(|v| vec![v[0] + v[1], v[1].max(10.0)], &[10.0, 10.0]);
        assert!(before.inflation[0] < 5.0, "{before:?}");
        assert!(after.inflation[0] > 100.0 && after.partner[0] == Some(1), "{after:?}");
    }

    #[test]
    fn being_interrupted_while_looking_leaves_what_the_search_said() {
        let free = [free(10.0)];
        let evaluate = |v: &[f64], _: &[bool]| Ok::<_, Halt<()>>(vec![v[0] / 10.0 - 1.0]);
        let found = fit(&free, &Settings::default(), evaluate, |_, _, _| ()).unwrap();
        let mut after = found.clone();
        look(&mut after, &[0], &free, &Settings::default(), |_, _| Err(Halt::<()>::Interrupted)).unwrap();
        assert_eq!(after, Fit { interrupted: true, ..found });
    }

    #[test]
    fn targets_that_are_missed_decide_less() {
        let free = [free(10.0), free(20.0)];
        // The same quantity is wanted to be two things: no fit meets both.
        let evaluate = |by: f64| {
            move |v: &[f64], _: &[bool]| {
                Ok::<_, Halt<()>>(vec![
                    v[0] / 11.0 - 1.0 - by,
                    v[0] / 11.0 - 1.0 + by,
                    (v[0] + v[1]) / 30.0 - 1.0,
                ])
            }
        };
        let resolution =
            |by| fit(&free, &Settings::default(), evaluate(by), |_, _, _| ()).unwrap().resolution[1];
        let (met, missed) = (resolution(0.0), resolution(0.3));
        assert!(met > 0.98 && missed < 0.6, "{met} and {missed}");
    }

    #[test]
    fn bounds_hold_and_may_begin_at_zero() {
        let free = [Free { start: 300.0, low: 0.0, high: 500.0 }, Free { start: 4.0, low: 3.0, high: 5.0 }];
        let evaluate = |v: &[f64], _: &[bool]| Ok::<_, Halt<()>>(vec![v[0] / 1000.0, v[1] / 10.0 - 1.0]);
        let fit =
            fit(&free, &Settings { rounds: 20, noise: 0.002, ..Settings::default() }, evaluate, |_, _, _| ())
                .unwrap();
        // The pull keeps the first a little above its bound; the second is driven against its own.
        assert!((0.0..45.0).contains(&fit.values[0]), "{:?}", fit.values);
        assert!((4.99..=5.0).contains(&fit.values[1]), "{:?}", fit.values);
    }

    #[test]
    fn an_interrupted_fit_keeps_the_best_so_far() {
        let truth = model(&[11.0, 12.0, 126.0, 65.0]);
        let free = [7.0, 20.0, 200.0, 40.0].map(free);
        let mut left = 7;
        let evaluate = |v: &[f64], _: &[bool]| {
            left -= 1;
            if left == 0 { Err(Halt::<()>::Interrupted) } else { Ok(errors(&model(v), &truth)) }
        };
        let fit = fit(&free, &Settings::default(), evaluate, |_, _, _| ()).unwrap();
        assert!(fit.interrupted && rms(&fit.after) < rms(&fit.before), "{fit:?}");
        let got = errors(&model(&fit.values), &truth);
        assert!(got.iter().zip(&fit.after).all(|(a, b)| (a - b).abs() < 1e-9), "values belong to the errors");
    }

    #[test]
    fn a_failed_evaluation_is_told() {
        let failed = fit(&[free(1.0)], &Settings::default(), |_, _| Err(Halt::Failed("no")), |_, _, _| ());
        assert_eq!(failed, Err("no"));
    }
}
