//! Refuses what does not fit into this machine's memory, before any of it is allocated and with the estimate.

use primitives::bench;
use primitives::measure::memory_available;

use crate::error::CliError;
use crate::fabrics::Fabric;
use crate::spec::{Experiment, Point};
use crate::sweep::usual_jobs;
use crate::transact;
use std::collections::BTreeMap;

const GIB: f64 = (1u64 << 30) as f64;

/// What helps a benchmark of requests that needs too much, where flags say its size and where a file does.
const LOWER: &str = "lower --nodes, --threads or --coroutines, or measure fewer points at a time with --jobs";
const LOWER_IN_FILE: &str = "lower nodes, threads, coroutines, outstanding or payload in the file, let few nodes be asked (`servers`), or measure \
                             fewer points at a time with --jobs";

/// What helps a study that needs too much.
pub const LOWER_STUDY: &str = "lower --nodes, --threads, --coroutines, --records or --payload, or measure fewer points at a time with --jobs";
/// What helps points of transactions that need too much together, each of which would fit.
const LOWER_TOGETHER: &str = "lower nodes, threads, coroutines, or the size of the workload with `set`, or measure fewer points at a time with --jobs";

/// Refuses `estimate` bytes if fewer are free; where the system does not tell, everything fits.
///
/// # Errors
/// Exit code 3 with the estimate, what is free, and `hint`.
pub fn fits(estimate: u64, hint: &str) -> Result<(), CliError> {
    fits_into(memory_available(), estimate, hint)
}

fn fits_into(free: Option<u64>, estimate: u64, hint: &str) -> Result<(), CliError> {
    match free {
        Some(free) if estimate > free => Err(CliError::machine(format!(
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

/// How many points that need so much each are measured at a time: as many as were asked for, or else as usual, but no more than fit.
///
/// # Errors
/// As [`fits`], of so many as were asked for, or of one.
pub fn fits_together(
    estimates: Vec<u64>,
    asked: Option<usize>,
    usual: usize,
    hint: &str,
) -> Result<usize, CliError> {
    jobs_into(memory_available(), estimates, asked, usual, hint)
}

fn jobs_into(
    free: Option<u64>,
    estimates: Vec<u64>,
    asked: Option<usize>,
    usual: usize,
    hint: &str,
) -> Result<usize, CliError> {
    if let Some(jobs) = asked {
        return fits_into(free, together(estimates, jobs), hint).map(|()| jobs);
    }
    // Estimates are of all that a point may touch: fewer at a time is better than none.
    let fitting =
        (1..=usual).rev().find(|&jobs| fits_into(free, together(estimates.clone(), jobs), hint).is_ok());
    match fitting {
        Some(jobs) => Ok(jobs),
        None => fits_into(free, together(estimates, 1), hint).map(|()| 1),
    }
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

/// Refuses a point of requests whose share of one node this machine has no room for: the others' is elsewhere.
///
/// # Errors
/// As [`fits`].
pub fn check_share(scope: &bench::Scope, point: &bench::Point) -> Result<(), CliError> {
    fits(bench::memory_estimate(false, scope, point) / u64::from(scope.nodes.max(1)), LOWER_IN_FILE)
}

/// How many points of an experiment are measured at a time, of which the largest ones may be side by side: as many as were asked for, or
/// as usual if those fit. What is wrong with a point of transactions otherwise is not told here, where nobody knows which line says it ([`crate::transact::check`]).
///
/// # Errors
/// As [`fits`]; or if a point names a benchmark that there is not.
pub fn jobs_for(experiment: &Experiment, asked: Option<usize>) -> Result<usize, CliError> {
    let mut fabrics: BTreeMap<String, Option<Fabric>> = BTreeMap::new();
    let mut one = |point: &Point| {
        let spec = &point.spec;
        if let Some(asked) = &spec.primitive {
            let (scope, asked) = asked.point(spec).map_err(CliError::usage)?;
            return Ok(bench::memory_estimate(spec.fabric.virtual_time(), &scope, &asked));
        }
        let open = || Fabric::open(&spec.fabric, spec.seed).ok();
        let fabric = fabrics.entry(spec.fabric.to_string()).or_insert_with(open).as_ref();
        Ok(fabric.and_then(|fabric| transact::memory(spec, fabric).ok()).unwrap_or(0))
    };
    let each = experiment.points.iter().map(&mut one).collect::<Result<Vec<u64>, CliError>>()?;
    let requests = experiment.points.iter().any(|point| point.spec.primitive.is_some());
    let usual = usual_jobs(experiment.virtual_time());
    fits_together(each, asked, usual, if requests { LOWER_IN_FILE } else { LOWER_TOGETHER })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_the_estimate() {
        let error = fits_into(Some(8 << 30), 20 << 30, "lower it").unwrap_err();
        assert_eq!(error.exit().code(), 3);
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

    #[test]
    fn fewer_at_a_time_where_nobody_has_asked_for_more() {
        let jobs = |asked| jobs_into(Some(10), vec![3, 4, 5], asked, 4, "").map_err(|e| e.exit().code());
        assert_eq!((jobs(None), jobs(Some(2)), jobs(Some(3))), (Ok(2), Ok(2), Err(3)));
        assert_eq!(jobs_into(Some(10), vec![11], None, 4, "").map_err(|e| e.exit().code()), Err(3));
    }
}
