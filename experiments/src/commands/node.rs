//! `doorbell node`: one member of a cluster of processes. It joins node 0, does what that describes, and ends with it.

use super::Context;
use crate::args::NodeArgs;
use crate::cluster::point::Asked;
use crate::cluster::{Cluster, Described, free_share_directory, give_up, run_member, share_directory};
use crate::error::CliError;
use crate::output::{check_new_directory, human_rate};
use primitives::mesh::Blame;
use std::path::PathBuf;

/// The command.
///
/// # Errors
/// Exit code 1 if a node was lost or interrupted, or a run failed, here or as a whole at node 0; 2 for what cannot be run; 3 for what this machine lacks, or
/// if node 0 does not answer, is of another build or could not bring all nodes together; 130 if this one was interrupted.
pub fn run(args: &NodeArgs, context: &Context) -> Result<(), CliError> {
    let cluster = Cluster::read(&args.cluster, args.join_within)?;
    // A share that could not be kept would be known only when it has been measured.
    let share_of = |run: u32| -> Result<PathBuf, CliError> {
        let share = share_directory(args.out.as_deref(), args.id, run);
        check_new_directory(&share).map(|()| share)
    };
    share_of(1)?;
    let mut session = cluster.join(args.id, &context.talk)?;
    context.interrupt.listen()?;
    context.talk.say(format!("node {}: joined", args.id));
    let mut runs = 0;
    while let Some(bytes) = session.next_run_unless(&|| context.interrupt.asked())? {
        runs += 1;
        context.interrupt.measured();
        let asked = Asked::decode(&bytes).map_err(|why| {
            session.fail(&why, Blame::Machine);
            CliError::machine(format!("node 0 asked for something that this doorbell does not know: {why}"))
        })?;
        if let Some(asked) = asked {
            context.talk.say(format!("node {}: measuring {}", args.id, asked.told()));
            asked.measure(&cluster, &mut session, context.interrupt.flag())?;
            continue;
        }
        let described = Described::decode(&bytes).map_err(|why| {
            session.fail(&why, Blame::Machine);
            CliError::machine(format!("node 0 described a run that this doorbell does not know: {why}"))
        })?;
        let spec = &described.spec;
        context.talk.say(format!(
            "node {}: running {} under {} with plan {} on {} for {}{}",
            args.id,
            spec.workload,
            spec.protocol,
            described.plan.name,
            spec.fabric,
            spec.duration,
            spec.of_clocks()
        ));
        // Of a grid nothing is kept but of a point that is cut short, and what an earlier session left of one stays.
        let share = match described.shares {
            true => share_of(runs).inspect_err(|error| give_up(&mut session, error))?,
            false => free_share_directory(args.out.as_deref(), args.id, runs),
        };
        let (own, _) = run_member(&cluster, &described, &mut session, &share, described.shares, context)?;
        let own = &own.result;
        context.talk.say(format!(
            "node {}: {} committed, {} attempts aborted here; told node 0",
            args.id,
            human_rate(own.committed_per_s()),
            human_rate(own.aborted_per_s())
        ));
        if own.interrupted {
            return Err(CliError::interrupted().hint("this node's share was kept"));
        }
    }
    Ok(())
}
