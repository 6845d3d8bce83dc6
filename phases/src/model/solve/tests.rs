use super::*;

/// Throughput of `customers` in a closed network of single-server stations with exponential service, by exact mean
/// value analysis (Reiser and Lavenberg 1980). `demands` are service times per visit to the system, `think` the time
/// outside. The yardstick for [`solve`].
fn exact_mva(demands: &[f64], think: f64, customers: u32) -> f64 {
    let mut queues = vec![0.0; demands.len()];
    let mut rate = 0.0;
    for n in 1..=customers {
        let stays: Vec<f64> = demands.iter().zip(&queues).map(|(d, q)| d * (1.0 + q)).collect();
        rate = f64::from(n) / (think + stays.iter().sum::<f64>());
        for (queue, stay) in queues.iter_mut().zip(&stays) {
            *queue = rate * stay;
        }
    }
    rate
}

/// A load of exponential visits to stations of the own node, one visit each.
fn exponential(services: &[(Station, f64)], delay_ns: f64) -> Load {
    let mut load = Load { delay_ns, ..Load::default() };
    for &(station, ns) in services {
        let u = &mut load[station];
        u.own = Visits { count: 1.0, ns, ns2: 2.0 * ns * ns };
        u.path_ns = ns;
        u.path_own = 1.0;
    }
    load
}

fn population(customers: f64) -> Population {
    Population {
        customers: [customers; Station::ALL.len()],
        instances: [1.0; Station::ALL.len()],
        poll_ns: 0.0,
    }
}

const NIC: [Station; 3] = [Station::Engine, Station::Link, Station::Pcie];

#[test]
fn exact_mva_agrees_with_cases_solved_by_hand() {
    // k balanced stations, n customers: n / (s (n + k - 1)).
    for (k, n) in [(1, 1), (1, 7), (2, 3), (4, 10)] {
        let expected = f64::from(n) / (10.0 * f64::from(n + k - 1));
        let got = exact_mva(&vec![10.0; k as usize], 0.0, n as u32);
        assert!((got - expected).abs() < 1e-12, "{k} stations, {n} customers: {got}, {expected}");
    }
    // Two customers, stations of 1 and 2 after a think time of 3, by hand: with one customer the stays are 1 and 2
    // and the rate 1/6; the second finds queues of 1/6 and 1/3, stays 7/6 and 8/3, and the rate is 2/(41/6).
    assert!((exact_mva(&[1.0, 2.0], 3.0, 2) - 12.0 / 41.0).abs() < 1e-12);
}

#[test]
fn balanced_exponential_stations_are_solved_exactly() {
    for k in 1..=3 {
        for n in [1.0, 2.0, 5.0, 40.0] {
            let load = exponential(&NIC[..k].iter().map(|&s| (s, 10.0)).collect::<Vec<_>>(), 0.0);
            let got = n * solve(&load, &population(n)).rate;
            let expected = n / (10.0 * (n + k as f64 - 1.0));
            assert!((got / expected - 1.0).abs() < 1e-6, "{k} stations, {n} customers: {got}, {expected}");
        }
    }
}

#[test]
fn unbalanced_exponential_stations_stay_near_exact_mva() {
    for services in [[10.0, 3.0, 1.0], [10.0, 9.0, 8.0], [50.0, 1.0, 1.0]] {
        for think in [0.0, 20.0, 200.0] {
            for n in [1u32, 2, 4, 16, 64] {
                let load = exponential(
                    &[(NIC[0], services[0]), (NIC[1], services[1]), (NIC[2], services[2])],
                    think,
                );
                let got = f64::from(n) * solve(&load, &population(f64::from(n))).rate;
                let exact = exact_mva(&services, think, n);
                // Schweitzer's approximation is known to stay within a few per cent.
                assert!((got / exact - 1.0).abs() < 0.06, "{services:?} {think} {n}: {got}, {exact}");
            }
        }
    }
}

#[test]
fn the_rate_respects_the_asymptotic_bounds() {
    for n in [1.0, 3.0, 12.0, 200.0] {
        for think in [0.0, 1_000.0] {
            let mut load = exponential(&[(NIC[0], 30.0), (NIC[1], 12.0)], think);
            load[Station::Core].other.add(3.0, 40.0);
            load[Station::Core].path_other = 1.0;
            load[Station::Core].path_ns = 40.0;
            let pop = Population { instances: [4.0; Station::ALL.len()], ..population(n) };
            let solution = solve(&load, &pop);
            let work = [30.0, 12.0, 120.0];
            for (i, ns) in work.into_iter().enumerate() {
                assert!(n * solution.rate <= 1.0 / ns * (1.0 + 1e-9), "station {i}");
            }
            assert!(solution.rate <= 1.0 / (think + 30.0 + 12.0 + 40.0) * (1.0 + 1e-9));
            assert!(solution.utilization.iter().all(|u| (0.0..=1.0 + 1e-9).contains(u)), "{solution:?}");
            // Little's law holds: the cycle is as long as the rate says, unless a station caps the rate.
            let cycle = solution.rate * solution.time(&load);
            assert!(cycle <= 1.0 + 1e-9 && (solution.saturated.is_some() || cycle > 1.0 - 1e-6), "{cycle}");
        }
    }
}

#[test]
fn one_customer_never_waits_for_itself() {
    let load = exponential(&[(NIC[0], 10.0), (NIC[1], 5.0)], 100.0);
    let solution = solve(&load, &population(1.0));
    assert!((solution.rate - 1.0 / 115.0).abs() < 1e-12);
    assert_eq!(solution.wait_own, [0.0; Station::ALL.len()]);
    assert_eq!(solution.saturated, None);
}

#[test]
fn steady_service_waits_half_as_long_as_exponential() {
    let spread = exponential(&[(NIC[0], 10.0)], 1_000.0);
    let mut steady = spread;
    steady[NIC[0]].own.ns2 = 100.0;
    let pop = population(60.0);
    let (a, b) = (state(&spread, &pop, 1e-3, &mut 1.0), state(&steady, &pop, 1e-3, &mut 1.0));
    let i = NIC[0] as usize;
    assert!((a.wait_own[i] / b.wait_own[i] - 2.0).abs() < 1e-9);
    assert!(solve(&steady, &pop).rate > solve(&spread, &pop).rate);
}

/// What requests no longer wait is what coroutines wait more: the sum of waits, by share of work, is as if all came in turn (Kleinrock's
/// conservation law). One request of many coroutines waits for what is under way, and for those before it.
#[test]
fn a_core_that_serves_first_keeps_the_sum_of_waits() {
    let visits = |ns: f64| Visits { count: 2.0, ns, ns2: ns * ns };
    let core = Use { own: visits(300.0), other: visits(120.0), ..Use::default() };
    let (many, rate) = (1e9, 1.9e-12);
    let mut at = Solution::default();
    requests_first(&mut at, rate, &core, &Default::default(), many, many);
    let [own, other] = [300.0, 120.0].map(|ns| rate * many * ns);
    let residual = rate * many * (core.own.ns2 + core.other.ns2) / 2.0;
    let (coroutine, request) = (at.wait_own[0], residual / (1.0 - other));
    let in_turn = (own + other) * residual / (1.0 - own - other);
    assert!(((own * coroutine + other * request) / in_turn - 1.0).abs() < 1e-6);
    // Its reply waits for those served after it.
    let reply = other * (request + 60.0) / (1.0 - other);
    assert!((at.wait_other[0] / (request + reply) - 1.0).abs() < 1e-9);
}

#[test]
fn the_knee_says_whether_latency_or_a_station_limits() {
    let load = exponential(&[(NIC[0], 10.0)], 990.0);
    assert_eq!(solve(&load, &population(50.0)).saturated, None);
    assert_eq!(solve(&load, &population(200.0)).saturated, Some(NIC[0]));
}

#[test]
fn nothing_to_do_has_no_rate_and_no_panic() {
    let solution = solve(&Load::default(), &population(8.0));
    assert_eq!((solution.rate, solution.saturated), (0.0, None));
    let delay = Load { delay_ns: 500.0, ..Load::default() };
    assert!((solve(&delay, &population(8.0)).rate - 1.0 / 500.0).abs() < 1e-12);
}

/// Loads of all kinds: light and heavy, with looks and shared doorbells, one whose busiest station nobody waits for.
fn loads() -> Vec<(Load, Population)> {
    let mut all = Vec::new();
    for (busy, delay) in [(5.0, 20_000.0), (40.0, 3_000.0), (300.0, 1_000.0), (2_000.0, 10.0)] {
        for (served, doorbells) in [(0.0, 0.0), (3.0, 120.0), (12.0, 900.0)] {
            for coroutines in [1, 8, 64] {
                let mut load = exponential(&[(NIC[0], busy), (NIC[1], 0.4 * busy)], delay);
                let core = &mut load[Station::Core];
                core.own = Visits { count: 5.0, ns: 900.0, ns2: 200_000.0 };
                core.other.add(served, 150.0);
                (core.path_ns, core.path_own) = (900.0, 5.0);
                (core.path_other, core.path_wide) = (0.5 * served, 1.2 * served);
                load.reply_doorbells_ns = doorbells;
                let population = Population::new(4, 6, coroutines, 1.0, 30.0);
                all.push((load, population));
                load[NIC[2]].own.add(1.0, 20.0 * busy + 1_000.0);
                all.push((load, population));
            }
        }
    }
    all
}

#[test]
fn halvings_find_the_same_rate() {
    for (load, population) in loads() {
        let found = solve(&load, &population);
        let cycles = |rate: f64| {
            let at = state(&load, &population, rate, &mut 1.0);
            rate * at.time(&load)
        };
        let (mut low, mut high) = (0.0, 2.0 * found.rate);
        for _ in 0..200 {
            let middle = 0.5 * (low + high);
            *(if cycles(middle) < 1.0 { &mut low } else { &mut high }) = middle;
        }
        let most = found.utilization.iter().fold(0.0, |a: f64, &b| a.max(b));
        // Either the cycle is one, or a station is busy all the time.
        let same = (found.rate / low - 1.0).abs() < 1e-9;
        assert!(same || (most - 1.0).abs() < 1e-9 && found.rate <= low, "{load:?}: {} {low}", found.rate);
    }
}

#[test]
fn a_search_finds_the_same_wherever_it_begins() {
    let all = loads();
    for (load, population) in &all {
        let fresh = solve(load, population);
        for (other, others) in all.iter().step_by(5) {
            let mut near = Near::default();
            solve_near(other, others, &mut near);
            let found = solve_near(load, population, &mut near);
            assert!((found.rate / fresh.rate - 1.0).abs() < 1e-10, "{} {}", found.rate, fresh.rate);
            assert_eq!(found.saturated, fresh.saturated);
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * (1.0 + a.abs());
            for (i, u) in load.uses.iter().enumerate() {
                let both = |of: fn(&Solution) -> &[f64; Station::ALL.len()]| (of(&found)[i], of(&fresh)[i]);
                let (own, other) = (both(|s| &s.wait_own), both(|s| &s.wait_other));
                let (own, other) = (waits_of(u.path_own, own), waits_of(u.path_other, other));
                let busy = both(|s| &s.utilization);
                let same = [own, other, busy].into_iter().all(|(a, b)| close(a, b));
                assert!(same, "{found:?} {fresh:?}");
            }
        }
    }
}

/// Two waits, where anybody waits.
fn waits_of(path: f64, (a, b): (f64, f64)) -> (f64, f64) {
    (waits(path, a), waits(path, b))
}

#[test]
fn a_search_that_begins_where_the_last_ended_takes_few_steps() {
    for (load, population) in loads() {
        let mut near = Near::default();
        let first = solve_near(&load, &population, &mut near);
        let mut more = Load::default();
        more.add_scaled(&load, 1.0 + 1e-6);
        let (share, slope) = (near.share.unwrap(), near.slope);
        let mut steps = 0;
        let excess = |x: f64| {
            steps += 1;
            let rate = x / share * first.rate;
            rate * state(&more, &population, rate, &mut 1.0).time(&more) - 1.0
        };
        if share < NEARLY_ALL {
            root(excess, share, Some(slope)).unwrap();
            assert!(steps <= 4, "{steps} steps at {share}");
        }
    }
}

#[test]
fn replies_that_share_a_doorbell_are_fetched_and_come_later() {
    let mut load = exponential(&[(NIC[0], 10.0)], 3_000.0);
    load[Station::Core].own = Visits { count: 3.0, ns: 600.0, ns2: 120_000.0 };
    load[Station::Core].other.add(3.0, 150.0);
    (load[Station::Core].path_ns, load[Station::Core].path_own) = (600.0, 3.0);
    (load[Station::Core].path_other, load[Station::Core].path_wide) = (3.0, 3.0);
    let fetched = Load { reply_fetches_ns: 3.0 * 450.0, ..load };
    let later = |coroutines| {
        let population = Population::new(4, 1, coroutines, 1.0, 30.0);
        let at = solve(&fetched, &population);
        let later = at.time(&fetched) - at.time(&load);
        assert!((later - at.turn.shared * 1350.0).abs() < 1e-9 && (0.0..1350.0).contains(&later), "{later}");
        later
    };
    // The busier the owners, the more replies wait for others to go with.
    assert!(later(1) < later(2) && later(2) < later(4));
}
