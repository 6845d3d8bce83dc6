//! The verbs, doorbells and round trips of each protocol's stages, held against the steps of RCC §4.2 to §4.5 (figures 5 to 10) by the
//! operations' own account and by the port's counters.

mod common;
use common::*;
use phases::ops::PhaseOps;
use phases::plan::{Needs, Phase, Plan, Step, Via};
use phases::rule::{CheckRule, LockRule, OnConflict, Packing, ReadLocks};
use phases::txn::{Intent, Txn};
use primitives::verbs::port::{Cost, Traffic};
use std::rc::Rc;

/// What a phase is to cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Steps {
    reads: u64,
    writes: u64,
    atomics: u64,
    sends: u64,
    doorbells: u32,
    round_trips: u32,
}

const NOTHING: Steps = Steps { reads: 0, writes: 0, atomics: 0, sends: 0, doorbells: 0, round_trips: 0 };
/// One call.
const CALL: Steps = Steps { sends: 1, doorbells: 1, round_trips: 1, ..NOTHING };
/// One READ.
const READ: Steps = Steps { reads: 1, doorbells: 1, round_trips: 1, ..NOTHING };
/// CAS and READ behind it.
const CAS_READ: Steps = Steps { atomics: 1, reads: 1, doorbells: 1, round_trips: 1, ..NOTHING };
/// CAS alone.
const CAS: Steps = Steps { atomics: 1, doorbells: 1, round_trips: 1, ..NOTHING };
/// WRITE and WRITE behind it.
const WRITE_WRITE: Steps = Steps { writes: 2, doorbells: 1, round_trips: 1, ..NOTHING };

fn spent(cost: Cost, traffic: Traffic) -> Steps {
    let Traffic { reads, writes, atomics, sends, .. } = traffic;
    assert_eq!(u64::from(cost.verbs), reads + writes + atomics + sends, "no verb escapes the account");
    assert_eq!(u64::from(cost.doorbells), traffic.doorbells);
    Steps { reads, writes, atomics, sends, doorbells: cost.doorbells, round_trips: cost.round_trips }
}

/// Fetch, lock, validate, install of one remote record, which is read or written.
async fn stages(env: Rc<Env>, needs: Needs, intent: Intent) -> Vec<(Phase, Steps)> {
    let ops = &env.phases;
    let mut txn = Txn::new();
    let mut all = Vec::new();
    // The second time round locations are known.
    for _ in 0..2 {
        all.clear();
        let stamp = env.begin(&mut txn).stamp;
        txn.time = ops.timestamp().unwrap();
        let packing = needs.packing;
        let reads = if packing == Packing::Locked { ReadLocks::Shared } else { ReadLocks::None };
        let on_conflict = match needs.protocol {
            "waitdie" => OnConflict::WaitIfOlder,
            _ => OnConflict::Fail,
        };
        let rule = LockRule { stamp, time: txn.time, packing, on_conflict, reads };
        let at = env.touch(&mut txn, T, 1, intent);
        for phase in [Phase::Fetch, Phase::Lock, Phase::Validate, Phase::Install] {
            let (before, cost) = (env.port.traffic(), txn.costs[phase]);
            let fetch = match (packing, intent) {
                (Packing::Locked, _) => false,
                // Two-sided, the lock brings the record.
                (_, Intent::Write) => ops.plan().step(Phase::Lock).via == Via::OneSided,
                (_, Intent::Read) => true,
            };
            match phase {
                Phase::Fetch if fetch => ops.fetch(&mut txn).await.unwrap(),
                Phase::Lock => ops.lock_and_read(&mut txn, rule).await.unwrap(),
                Phase::Validate if needs.runs(phase) => {
                    // Beyond any lease there is.
                    let beyond = txn.accesses()[at].header.lease_end() + 5;
                    let check = match packing {
                        Packing::Versions => CheckRule::ReadAt,
                        _ => CheckRule::LeaseCovers(beyond),
                    };
                    ops.validate(&mut txn, check).await.unwrap();
                }
                Phase::Install => {
                    if intent == Intent::Write {
                        txn.set_word(at, 0, 7);
                        txn.install_at = match packing {
                            Packing::Locked | Packing::Counted => 0,
                            Packing::Leased => txn.accesses()[at].header.lease_end() + 1,
                            Packing::Versions => txn.time.0,
                        };
                    }
                    ops.install_and_unlock(&mut txn).await.unwrap();
                }
                _ => {}
            }
            let after = txn.costs[phase];
            let cost = Cost {
                verbs: after.verbs - cost.verbs,
                doorbells: after.doorbells - cost.doorbells,
                round_trips: after.round_trips - cost.round_trips,
            };
            all.push((phase, spent(cost, env.port.traffic().since(&before))));
        }
    }
    ops.settle().await.unwrap();
    all
}

fn check(needs: Needs, via: Via, intent: Intent, expected: [Steps; 4]) {
    let mut plan = Plan::uniform(via).restricted_to(&needs);
    plan.install = plan.install.map(|step| Step { passive_ack: false, ..step });
    for fabric in [loopback(), sim(1)] {
        let setup = Setup { fabric, needs, ..patient(plan) };
        let ran = run(&setup, move |env| Box::pin(stages(env, needs, intent)));
        let phases = [Phase::Fetch, Phase::Lock, Phase::Validate, Phase::Install];
        for ((phase, got), want) in ran.outputs[0].iter().zip(expected) {
            assert!(phases.contains(phase));
            assert_eq!(*got, want, "{} {via} {intent:?}: {phase}", needs.protocol);
        }
    }
}

/// Figure 5: a1 is one call, a4 another; b1 is CAS and READ, b3 two WRITEs. A shared lock is freed by an
/// atomic, as others may hold it; the paper has none.
#[test]
fn two_phase_locking() {
    for needs in [Needs::NOWAIT, Needs::WAITDIE] {
        check(needs, Via::OneSided, Intent::Write, [NOTHING, CAS_READ, NOTHING, WRITE_WRITE]);
        check(needs, Via::OneSided, Intent::Read, [NOTHING, CAS_READ, NOTHING, CAS]);
        check(needs, Via::TwoSided, Intent::Write, [NOTHING, CALL, NOTHING, CALL]);
        check(needs, Via::TwoSided, Intent::Read, [NOTHING, CALL, NOTHING, CALL]);
    }
}

/// Figures 9 and 10: a write is one call and one to commit, or CAS and READ (b1) and two WRITEs (b4); a read is one call or READ
/// (b1); a renewal is one call (a4), or READ and then an update of the lease (b3), here a CAS. One word holds lock and lease
/// here, so a one-sided lock has a READ before it which the paper's has not.
#[test]
fn sundial() {
    let renewal = Steps { reads: 1, atomics: 1, doorbells: 2, round_trips: 2, ..NOTHING };
    check(Needs::SUNDIAL, Via::OneSided, Intent::Write, [READ, CAS_READ, NOTHING, WRITE_WRITE]);
    check(Needs::SUNDIAL, Via::OneSided, Intent::Read, [READ, NOTHING, renewal, NOTHING]);
    check(Needs::SUNDIAL, Via::TwoSided, Intent::Write, [NOTHING, CALL, NOTHING, CALL]);
    check(Needs::SUNDIAL, Via::TwoSided, Intent::Read, [CALL, NOTHING, CALL, NOTHING]);
}

/// Figures 7 and 8: a write is READ (b1), CAS and READ (b4), two WRITEs (b6), or two calls; a read is READ (b1), READ (b4) and CAS
/// (b7), or one call. Here CAS and second READ share a doorbell and a round trip, with a READ of the lock between
/// them, which has to come before that of the versions.
#[test]
fn mvcc() {
    let second_look = Steps { atomics: 1, reads: 2, doorbells: 1, round_trips: 1, ..NOTHING };
    check(Needs::MVCC, Via::OneSided, Intent::Write, [READ, CAS_READ, NOTHING, WRITE_WRITE]);
    check(Needs::MVCC, Via::OneSided, Intent::Read, [READ, NOTHING, second_look, NOTHING]);
    check(Needs::MVCC, Via::TwoSided, Intent::Write, [NOTHING, CALL, NOTHING, CALL]);
    check(Needs::MVCC, Via::TwoSided, Intent::Read, [CALL, NOTHING, NOTHING, NOTHING]);
}
