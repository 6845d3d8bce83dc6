//! Refuses what does not fit into this machine's memory, before any of it is allocated and with the estimate.

use primitives::bench;
use primitives::measure::memory_available;

use crate::error::CliError;
use crate::spec::{Experiment, Point};

const GIB: f64 = (1u64 << 30) as f64;

/// What helps a benchmark of requests that needs too much, where flags say its size and where a file does.
const LOWER: &str = "lower --nodes, --threads or --coroutines, or measure fewer points at a time with --jobs";
const LOWER_IN_FILE: &str = "lower nodes, threads, coroutines, outstanding or payload in the file, let few nodes be asked (`servers`), or measure \
                             fewer points at a time with --jobs";

/// Refuses `estimate` bytes if fewer are free; where the system does not tell, everything fits.
///
/// # Errors
/// Exit code 2 with the estimate, what is free, and `hint`.
pub fn fits(estimate: u64, hint: &str) -> Result<(), CliError> {
    fits_into(memory_available(), estimate, hint)
}

fn fits_into(free: Option<u64>, estimate: u64, hint: &str) -> Result<(), CliError> {
    match free {
        Some(free) if estimate > free => Err(CliError::usage(format!(
            "the run needs about {:.1} GiB, {:.1} GiB are free",
            estimate as f64 / GIB,
            free as f64 / GIB
        ))
        .hint(hint)),
        _ => Ok(()),
    }
}

/// Bytes that the largest of these points hold together, `jobs` at a time.
fn together(mut estimates: Vec<u64>, jobs: usize) -> u64 {
    estimates.sort_unstable_by(|a, b| b.cmp(a));
    estimates.into_iter().take(jobs.max(1)).fold(0, u64::saturating_add)
}

/// Refuses the points of a characterization, `jobs` at a time.
///
/// # Errors
/// As [`fits`].
pub fn check_points(
    virtual_time: bool,
    scope: &bench::Scope,
    points: &[bench::Point],
    jobs: usize,
) -> Result<(), CliError> {
    let each = points.iter().map(|point| bench::memory_estimate(virtual_time, scope, point)).collect();
    fits(together(each, jobs), LOWER)
}

/// Refuses an experiment whose benchmark points, `jobs` at a time, do not fit. Transactions are checked as each of their
/// plans is known ([`crate::transact::check`]).
///
/// # Errors
/// As [`fits`]; or if a point names a benchmark that there is not.
pub fn check_experiment(experiment: &Experiment, jobs: usize) -> Result<(), CliError> {
    let one = |point: &Point| {
        let Some(asked) = &point.spec.primitive else { return Ok(0) };
        let (scope, asked) = asked.point(&point.spec).map_err(CliError::usage)?;
        Ok(bench::memory_estimate(point.spec.fabric.virtual_time(), &scope, &asked))
    };
    let each = experiment.points.iter().map(one).collect::<Result<Vec<u64>, CliError>>()?;
    fits(together(each, jobs), LOWER_IN_FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_the_estimate() {
        let error = fits_into(Some(8 << 30), 20 << 30, "lower it").unwrap_err();
        assert_eq!(error.exit().code(), 2);
        let text = error.render(false);
        assert!(text.contains("20.0 GiB") && text.contains("8.0 GiB") && text.contains("lower it"), "{text}");
        assert!(fits_into(Some(8), 8, "").is_ok() && fits_into(None, u64::MAX, "").is_ok());
    }

    #[test]
    fn points_side_by_side_add_up() {
        assert_eq!(together(vec![3, 9, 5], 2), 14);
        assert_eq!(together(vec![3, 9, 5], 0), 9);
        assert_eq!(together(vec![u64::MAX, u64::MAX], 9), u64::MAX);
    }
}
