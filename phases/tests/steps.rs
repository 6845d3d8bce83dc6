//! The verbs, doorbells and round trips of each protocol's stages, held against the steps of RCC §4.2 to §4.5 (figures 5 to 10) by the
//! operations' own account and by the port's counters.

mod common;
use common::*;
use phases::ops::PhaseOps;
use phases::plan::{Needs, Phase, Plan, Step, Via};
use phases::rule::{Abort, CheckRule, LockRule, OnConflict, Packing, ReadLocks};
use phases::txn::{Intent, Txn};
use primitives::exec::sleep_until;
use primitives::units::Nanos;
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
/// WRITE of a lock word.
const WRITE: Steps = Steps { writes: 1, doorbells: 1, round_trips: 1, ..NOTHING };
/// WRITE and WRITE behind it.
const WRITE_WRITE: Steps = Steps { writes: 2, doorbells: 1, round_trips: 1, ..NOTHING };

fn spent(cost: Cost, traffic: Traffic) -> Steps {
    let Traffic { reads, writes, atomics, sends, .. } = traffic;
    assert_eq!(u64::from(cost.verbs), reads + writes + atomics + sends, "no verb escapes the account");
    assert_eq!(u64::from(cost.doorbells), traffic.doorbells);
    assert!(sends > 0 || u64::from(cost.bytes) == traffic.bytes, "no byte escapes the account: {cost:?}");
    Steps { reads, writes, atomics, sends, doorbells: cost.doorbells, round_trips: cost.round_trips }
}

/// The same again and again, one after the other.
fn times(n: u32, of: Steps) -> Steps {
    let (many, each) = (u64::from(n), of);
    Steps {
        reads: many * each.reads,
        writes: many * each.writes,
        atomics: many * each.atomics,
        sends: many * each.sends,
        doorbells: n * each.doorbells,
        round_trips: n * each.round_trips,
    }
}

/// What a phase has cost from here on, by both accounts.
struct Account {
    phase: Phase,
    cost: Cost,
    traffic: Traffic,
}

impl Account {
    fn open(env: &Env, txn: &Txn, phase: Phase) -> Account {
        Account { phase, cost: txn.costs[phase], traffic: env.port.traffic() }
    }

    fn close(self, env: &Env, txn: &Txn) -> Steps {
        let after = txn.costs[self.phase];
        let cost = Cost {
            verbs: after.verbs - self.cost.verbs,
            doorbells: after.doorbells - self.cost.doorbells,
            round_trips: after.round_trips - self.cost.round_trips,
            bytes: after.bytes - self.cost.bytes,
        };
        spent(cost, env.port.traffic().since(&self.traffic))
    }
}

/// How a protocol locks.
fn rule_of(needs: &Needs, txn: &Txn) -> LockRule {
    let reads = match needs.packing {
        Packing::Locked if needs.shared_locks => ReadLocks::Shared,
        Packing::Locked => ReadLocks::Exclusive,
        _ => ReadLocks::None,
    };
    let (stamp, time, packing, on_conflict) = (txn.stamp, txn.time, needs.packing, needs.on_conflict);
    LockRule { stamp, time, packing, on_conflict, reads }
}

/// The plan, with answers to commit and release waited for.
fn answered(via: Via, needs: &Needs) -> Plan {
    let mut plan = Plan::uniform(via).restricted_to(needs);
    plan.install = plan.install.map(|step| Step { passive_ack: false, ..step });
    plan.unlock = plan.unlock.map(|step| Step { passive_ack: false, ..step });
    plan
}

/// Fetch, lock, validate, install of one remote record, which is read or written.
async fn stages(env: Rc<Env>, needs: Needs, intent: Intent) -> Vec<(Phase, Steps)> {
    let ops = &env.phases;
    let mut txn = Txn::new();
    let mut all = Vec::new();
    // The second time round locations are known.
    for _ in 0..2 {
        all.clear();
        env.begin(&mut txn);
        txn.time = ops.timestamp().unwrap();
        let (packing, rule) = (needs.packing, rule_of(&needs, &txn));
        let at = env.touch(&mut txn, T, 1, intent);
        for phase in [Phase::Fetch, Phase::Lock, Phase::Validate, Phase::Install] {
            let account = Account::open(&env, &txn, phase);
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
            all.push((phase, account.close(&env, &txn)));
        }
    }
    ops.settle().await.unwrap();
    all
}

fn check(needs: Needs, via: Via, intent: Intent, expected: [Steps; 4]) {
    let plan = answered(via, &needs);
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

/// Figure 5 with the paper's lock words, which have one holder: who only reads locks as who writes does, and frees with a WRITE.
#[test]
fn two_phase_locking_with_one_holder() {
    for needs in [Needs::NOWAIT_EXCLUSIVE, Needs::WAITDIE_EXCLUSIVE] {
        check(needs, Via::OneSided, Intent::Write, [NOTHING, CAS_READ, NOTHING, WRITE_WRITE]);
        check(needs, Via::OneSided, Intent::Read, [NOTHING, CAS_READ, NOTHING, WRITE]);
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

/// Asks for a lock as the first transaction of a protocol, after reading where a lock must know the word.
async fn ask(env: &Env, txn: &mut Txn, needs: &Needs) -> (Steps, Option<Abort>) {
    if needs.packing != Packing::Locked && env.phases.plan().step(Phase::Lock).via == Via::OneSided {
        env.phases.fetch(txn).await.unwrap();
    }
    let account = Account::open(env, txn, Phase::Lock);
    let ended = abort_of(env.phases.lock_and_read(txn, rule_of(needs, txn)).await);
    (account.close(env, txn), ended)
}

/// What it costs to free what is held.
async fn free(env: &Env, txn: &mut Txn) -> Steps {
    let account = Account::open(env, txn, Phase::Unlock);
    env.phases.unlock(txn).await.unwrap();
    account.close(env, txn)
}

/// Two records of node 1.
const HELD: u64 = 1;
const OTHER: u64 = 4;

/// One transaction holds a record with `theirs`. Another asks for it and for one that is free, with `intent`; what that costs, how it
/// ends, and what letting go costs.
async fn conflict(
    env: Rc<Env>,
    needs: Needs,
    theirs: Intent,
    intent: Intent,
) -> (Steps, Option<Abort>, Steps) {
    let (mut first, mut second) = (Txn::new(), Txn::new());
    // Locations are known from the first time on.
    for key in [HELD, OTHER] {
        env.begin(&mut first);
        first.time = env.phases.timestamp().unwrap();
        env.touch(&mut first, T, key, Intent::Write);
        assert_eq!(ask(&env, &mut first, &needs).await.1, None);
        free(&env, &mut first).await;
    }
    for (txn, intent) in [(&mut first, theirs), (&mut second, intent)] {
        env.begin(txn);
        txn.time = env.phases.timestamp().unwrap();
        env.touch(txn, T, HELD, intent);
    }
    assert_eq!(ask(&env, &mut first, &needs).await.1, None);
    env.touch(&mut second, T, OTHER, intent);
    let (asked, ended) = ask(&env, &mut second, &needs).await;
    assert!(second.holds_locks(), "{}: the other one is free", needs.protocol);
    let freed = free(&env, &mut second).await;
    free(&env, &mut first).await;
    env.phases.settle().await.unwrap();
    (asked, ended, freed)
}

/// Runs it everywhere; the same everywhere.
fn conflicts(needs: Needs, via: Via, theirs: Intent, intent: Intent) -> (Steps, Option<Abort>, Steps) {
    let of = |fabric| {
        let setup = Setup { fabric, needs, ..patient(answered(via, &needs)) };
        let ran = run(&setup, move |env| Box::pin(conflict(env, needs, theirs, intent)));
        for store in &ran.stores {
            // No lock is left behind.
            contents(store);
        }
        ran.outputs[0]
    };
    let (threads, simulated) = (of(loopback()), of(sim(1)));
    assert_eq!(threads, simulated, "{} {via}", needs.protocol);
    simulated
}

/// Step b2 of figure 5 and step a3: who does not get a lock gives up, and frees what it has, each lock with a WRITE or a request. A lock
/// that others may share goes by an atomic. What goes to one node, both CAS and READs or both
/// requests, had one doorbell.
#[test]
fn unlock_after_an_abort() {
    let one_sided = Steps { atomics: 2, reads: 2, doorbells: 1, round_trips: 1, ..NOTHING };
    let two_sided = Steps { sends: 2, doorbells: 1, round_trips: 1, ..NOTHING };
    let of = [
        (Needs::OCC, Abort::LockConflict, Intent::Write, WRITE),
        (Needs::NOWAIT, Abort::LockConflict, Intent::Write, WRITE),
        (Needs::NOWAIT, Abort::LockConflict, Intent::Read, CAS),
        (Needs::NOWAIT_EXCLUSIVE, Abort::LockConflict, Intent::Write, WRITE),
        (Needs::NOWAIT_EXCLUSIVE, Abort::LockConflict, Intent::Read, WRITE),
        (Needs::WAITDIE, Abort::Died, Intent::Write, WRITE),
        (Needs::WAITDIE, Abort::Died, Intent::Read, CAS),
        (Needs::WAITDIE_EXCLUSIVE, Abort::Died, Intent::Read, WRITE),
        (Needs::SUNDIAL, Abort::LockConflict, Intent::Write, WRITE),
        (Needs::MVCC, Abort::LockConflict, Intent::Write, WRITE),
    ];
    for (needs, why, intent, freed) in of {
        let what = format!("{} {intent:?}", needs.protocol);
        let got = conflicts(needs, Via::OneSided, Intent::Write, intent);
        assert_eq!(got, (one_sided, Some(why), freed), "{what}");
        let got = conflicts(needs, Via::TwoSided, Intent::Write, intent);
        assert_eq!(got, (two_sided, Some(why), CALL), "{what}");
    }
}

/// Steps b1 and b2 of figure 6, as often as a rule allows: each time the CAS that is repeated has its READ behind it, and those that
/// succeeded are not repeated. Two-sided that many requests.
#[test]
fn a_lock_that_is_held_is_asked_for_again() {
    let needs = Needs { on_conflict: OnConflict::Retry(3), ..Needs::BOUNDED_WAIT };
    let (asked, ended, freed) = conflicts(needs, Via::OneSided, Intent::Write, Intent::Write);
    let first = Steps { atomics: 2, reads: 2, doorbells: 1, round_trips: 1, ..NOTHING };
    let again = times(3, CAS_READ);
    let all = Steps {
        atomics: first.atomics + again.atomics,
        reads: first.reads + again.reads,
        doorbells: first.doorbells + again.doorbells,
        round_trips: first.round_trips + again.round_trips,
        ..NOTHING
    };
    assert_eq!((asked, ended, freed), (all, Some(Abort::LockConflict), WRITE));
    let (asked, ended, freed) = conflicts(needs, Via::TwoSided, Intent::Write, Intent::Write);
    let all = Steps { sends: 2 + 3, doorbells: 1 + 3, round_trips: 1 + 3, ..NOTHING };
    assert_eq!((asked, ended, freed), (all, Some(Abort::LockConflict), CALL));
}

/// A CAS that expected a free lock and found one reader is repeated once, with what it found; the owner needs no guess.
#[test]
fn a_lock_that_is_shared_takes_a_second_cas() {
    for needs in [Needs::NOWAIT, Needs::WAITDIE] {
        let (asked, ended, freed) = conflicts(needs, Via::OneSided, Intent::Read, Intent::Read);
        let all = Steps { atomics: 3, reads: 3, doorbells: 2, round_trips: 2, ..NOTHING };
        let both = Steps { atomics: 2, doorbells: 1, round_trips: 1, ..NOTHING };
        assert_eq!((asked, ended, freed), (all, None, both), "{}", needs.protocol);
        let (asked, ended, _) = conflicts(needs, Via::TwoSided, Intent::Read, Intent::Read);
        let calls = Steps { sends: 2, doorbells: 1, round_trips: 1, ..NOTHING };
        assert_eq!((asked, ended), (calls, None), "{}", needs.protocol);
    }
}

/// Node 2's transaction holds a record, node 0's older one waits for it; what the lock cost that one.
async fn wait(env: Rc<Env>, needs: Needs) -> Option<Steps> {
    let mut txn = Txn::new();
    let until = async |ns| sleep_until(&env.port, Nanos(ns)).await;
    let (begins, asks, ends) = match env.site.node.0 {
        0 => (0, 20_000, 0),
        2 => (5_000, 10_000, 40_000),
        _ => return None,
    };
    until(begins).await;
    txn.time = env.phases.timestamp().unwrap();
    if env.site.node.0 == 0 {
        // Where the record is.
        env.begin(&mut txn);
        env.touch(&mut txn, T, HELD, Intent::Read);
        ask(&env, &mut txn, &needs).await;
        free(&env, &mut txn).await;
    }
    until(asks).await;
    env.begin(&mut txn);
    env.touch(&mut txn, T, HELD, Intent::Write);
    let (asked, ended) = ask(&env, &mut txn, &needs).await;
    assert_eq!(ended, None);
    until(ends).await;
    free(&env, &mut txn).await;
    env.phases.settle().await.unwrap();
    Some(asked)
}

/// Figure 6: the older one repeats CAS and READ until the lock is free (b2), and nothing else; two-sided it has sent one request, which
/// the owner keeps (a2, a3).
#[test]
fn waiting_is_cas_and_read_again_or_one_call() {
    for needs in [Needs::WAITDIE, Needs::WAITDIE_EXCLUSIVE] {
        let asked = |via| {
            let setup = Setup { fabric: sim(3), everywhere: 1, needs, ..patient(answered(via, &needs)) };
            run(&setup, move |env| Box::pin(wait(env, needs))).outputs[0].expect("node 0 has waited")
        };
        let one_sided = asked(Via::OneSided);
        assert!(one_sided.round_trips > 3, "it has hardly waited: {one_sided:?}");
        assert_eq!(one_sided, times(one_sided.round_trips, CAS_READ), "{}", needs.protocol);
        assert_eq!(asked(Via::TwoSided), CALL, "{}", needs.protocol);
    }
}
