//! From a port's queues to the NIC: chains under one doorbell, what is refused, and what waited for room.

use super::group::{Awaited, Groups, Owner};
use super::queue::{Line, Rings, held};
use super::{Port, State, VerbError};
use crate::fabric::{CpuWork, Nic, PostError};
use crate::verbs::WorkRequest;

impl<N: Nic> Port<N> {
    #[cold]
    pub(super) fn drain_backlogs(&self, state: &mut State) {
        for index in 0..state.lines.len() as u32 {
            let doorbells = self.drain_backlog(state, index);
            state.traffic.doorbells += u64::from(doorbells);
        }
        self.wake_for_room(state);
    }

    pub(super) fn wake_for_room(&self, state: &mut State) {
        if state.lined_up == 0 {
            for task in state.room_waiters.drain(..) {
                self.sched.wake(task);
            }
        }
    }

    /// Posts what waited for room in one queue, as far as it has room now. Returns doorbells.
    #[cold]
    pub(super) fn drain_backlog(&self, state: &mut State, index: u32) -> u32 {
        let (line, backlog) = (&mut state.lines[index as usize], &mut state.backlogs[index as usize]);
        let (mut doorbells, per_doorbell) = (0, self.per_doorbell as usize);
        while line.room() > 0 && !backlog.is_empty() {
            let fits = (line.room() as usize).min(backlog.len());
            // Not the queue's own chain: a batch may be being built there.
            let (chain, owners) = &mut state.moving;
            chain.clear();
            owners.clear();
            for (request, group) in backlog.drain(..fits) {
                chain.push(request);
                owners.push(group);
            }
            state.lined_up -= fits;
            // A refusal is the result of the group it belongs to.
            let groups = &mut state.groups;
            let rings = &mut state.rings;
            doorbells += self.post_chain(line, rings, groups, chain, |i| owners[i], per_doorbell, &mut None);
        }
        doorbells
    }

    /// Posts a request by itself, for which its queue has room: what [`Port::post_chain`] does, without its loops. If it is
    /// refused, what it held is the caller's.
    #[inline(always)]
    pub(super) fn post_one(
        &self,
        line: &mut Line,
        rings: &mut Rings,
        request: &mut WorkRequest,
        owner: Owner,
    ) -> Result<Awaited, PostError> {
        let entered = self.enter(line, rings, request, owner);
        self.nic.charge(CpuWork::Doorbell);
        self.nic.post_one(line.qp, request).inspect_err(|_| line.withdraw(1))?;
        Ok(entered)
    }

    /// Rings a queue's doorbell.
    #[inline(never)]
    fn ring(&self, line: &Line, chain: &[WorkRequest]) -> Result<(), PostError> {
        self.nic.post(line.qp, chain)
    }

    /// Puts a request in its queue and charges for building it.
    #[inline(always)]
    fn enter(&self, line: &mut Line, rings: &mut Rings, request: &mut WorkRequest, owner: Owner) -> Awaited {
        let entered = line.enter(rings, request, owner, self.config.signal_period);
        self.nic.charge(CpuWork::Request);
        if request.flags.inline {
            self.nic.charge(CpuWork::Inline(request.local.len));
        }
        entered
    }

    /// Posts requests of one queue, which has room for them, `per_doorbell` at a time; request `i` belongs to group
    /// `owner(i)`. Of a refused request's batch all that is behind it is dropped, and its group told. Returns
    /// doorbells; `first_refusal` is set by the first refusal, if it was not before.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn post_chain(
        &self,
        line: &mut Line,
        rings: &mut Rings,
        groups: &mut Groups,
        chain: &mut [WorkRequest],
        owner: impl Fn(usize) -> Owner,
        per_doorbell: usize,
        first_refusal: &mut Option<PostError>,
    ) -> u32 {
        let (mut doorbells, mut start) = (0, 0);
        while start < chain.len() {
            let end = chain.len().min(start + per_doorbell);
            for (i, request) in chain[start..end].iter_mut().enumerate() {
                self.enter(line, rings, request, owner(start + i));
            }
            self.nic.charge(CpuWork::Doorbell);
            doorbells += 1;
            start = match self.ring(line, &chain[start..end]) {
                Ok(()) => end,
                Err(refused) => {
                    first_refusal.get_or_insert(refused);
                    self.after_refusal(line, rings, groups, chain, &owner, start..end, refused)
                }
            };
        }
        doorbells
    }

    /// Drops the refused one of `asked` and what is behind it in its group. Returns where posting goes on.
    #[cold]
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    fn after_refusal(
        &self,
        line: &mut Line,
        rings: &mut Rings,
        groups: &mut Groups,
        chain: &mut [WorkRequest],
        owner: &impl Fn(usize) -> Owner,
        asked: std::ops::Range<usize>,
        refused: PostError,
    ) -> usize {
        let taken = asked.start + line.take_back(rings, &mut chain[asked], &refused);
        let group = owner(taken);
        let dropped = (taken..chain.len()).take_while(|&i| owner(i) == group).count();
        self.drop_refused(line, rings, groups, &chain[taken..taken + dropped], group, refused);
        taken + dropped
    }

    /// Lets go of what was refused, and tells its group.
    #[cold]
    fn drop_refused(
        &self,
        line: &mut Line,
        rings: &mut Rings,
        groups: &mut Groups,
        dropped: &[WorkRequest],
        group: Owner,
        refused: PostError,
    ) {
        line.detach(rings, group, groups, &self.sched);
        for request in dropped {
            self.pool.unpin(held(request));
            groups.fail(group, None, VerbError::Post(refused), &self.sched);
        }
    }
}
