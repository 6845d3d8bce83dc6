use super::*;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

const SCALE: Scale = Scale { nodes: 2, workers: 2 };

fn parse(settings: &[(&str, &str)]) -> Result<Ycsb, ParamError> {
    Ycsb::parse(SCALE, settings.iter().copied())
}

fn draws(settings: &[(&str, &str)], n: usize) -> Vec<Input> {
    let ycsb = parse(settings).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    (0..n).map(|_| ycsb.draw(&mut rng)).collect()
}

/// Five standard deviations of a share near `p` out of `n`.
fn near(p: f64, n: f64) -> f64 {
    5.0 * (p * (1.0 - p) / n).sqrt()
}

#[test]
fn operations_write_with_their_share_and_each_alone() {
    const N: usize = 40_000;
    let inputs = draws(&[("write_share", "0.2")], N);
    let counts: Vec<u32> = inputs.iter().map(|input| input.writes.count_ones()).collect();
    assert!(inputs.iter().all(|input| input.writes >> 10 == 0), "only ten operations");
    let mean = f64::from(counts.iter().sum::<u32>()) / (10 * N) as f64;
    assert!((mean - 0.2).abs() < near(0.2, (10 * N) as f64), "{mean}");
    // Binomial, not two writes in every transaction.
    for (writes, p) in [(0, 0.8f64.powi(10)), (2, 45.0 * 0.2f64.powi(2) * 0.8f64.powi(8))] {
        let share = counts.iter().filter(|&&n| n == writes).count() as f64 / N as f64;
        assert!((share - p).abs() < near(p, N as f64), "{writes} writes: {share}, not {p}");
    }
    assert!(draws(&[("write_share", "0")], 100).iter().all(|input| input.writes == 0));
    assert!(draws(&[("write_share", "1")], 100).iter().all(|input| input.writes == (1 << 10) - 1));
}

#[test]
fn the_hot_area_takes_its_share_of_operations() {
    const N: usize = 20_000;
    let settings = [("hot_accesses_share", "0.3"), ("hot_records_share", "0.01")];
    let inputs = draws(&settings, N);
    // 60 000 records, of which the first 600 are hot.
    let keys = || inputs.iter().flat_map(|input| input.keys[..10].iter());
    let hot = keys().filter(|&&key| key < 600).count() as f64 / (10 * N) as f64;
    assert!((hot - 0.3).abs() < near(0.3, (10 * N) as f64), "{hot}");
    let uniform = draws(&[], N);
    let first = uniform.iter().flat_map(|input| &input.keys[..10]).filter(|&&key| key < 600).count();
    let share = first as f64 / (10 * N) as f64;
    assert!((share - 0.01).abs() < near(0.01, (10 * N) as f64), "{share}");
}

#[test]
fn fields_that_writes_change_are_drawn_alike() {
    let inputs = draws(&[("write_share", "1"), ("fields", "10"), ("field_bytes", "10")], 5_000);
    let mut counts = [0u32; 10];
    inputs.iter().flat_map(|input| &input.fields[..10]).for_each(|&field| counts[usize::from(field)] += 1);
    assert!(
        counts.iter().all(|&n| (f64::from(n) / 50_000.0 - 0.1).abs() < near(0.1, 50_000.0)),
        "{counts:?}"
    );
}

#[test]
fn records_of_a_transaction_differ_however_skewed() {
    for skew in [("zipf_theta", "0.9999"), ("hot_accesses_share", "1")] {
        for input in draws(&[("records_per_thread", "3"), ("operations", "12"), skew], 200) {
            let mut keys = input.keys[..12].to_vec();
            keys.sort_unstable();
            assert_eq!(keys, (0..12).collect::<Vec<u64>>());
        }
    }
}

#[test]
fn records_are_as_long_as_their_fields() {
    let bytes =
        |fields, size| parse(&[("fields", fields), ("field_bytes", size)]).unwrap().tables()[0].payload_bytes;
    assert_eq!(
        (bytes("8", "8"), bytes("10", "10"), bytes("10", "100"), bytes("1", "4096")),
        (64, 104, 1000, 4096)
    );
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let refusal = |settings: &[(&str, &str)]| parse(settings).unwrap_err().to_string();
    for (key, bad) in [
        ("records_per_thread", "0"),
        ("fields", "0"),
        ("fields", "513"),
        ("field_bytes", "7"),
        ("field_bytes", "4097"),
        ("operations", "0"),
        ("operations", "33"),
        ("write_share", "1.1"),
        ("write_share", "-0.1"),
        ("zipf_theta", "1"),
        ("hot_records_share", "2"),
        ("hot_accesses_share", "NaN"),
        ("think_us", "-1"),
        ("think_us", "10001"),
        ("blind", "maybe"),
    ] {
        let message = refusal(&[(key, bad)]);
        assert!(message.contains(key) && message.contains(bad), "{message}");
    }
    // What would do is told, and does.
    let long = refusal(&[("fields", "100"), ("field_bytes", "90")]);
    assert!(long.contains("records of 9000 B") && long.contains("fields=45 or field_bytes=40"), "{long}");
    for settings in [[("fields", "45"), ("field_bytes", "90")], [("fields", "100"), ("field_bytes", "40")]] {
        parse(&settings).unwrap();
    }
    assert!(refusal(&[("records_per_thread", "2"), ("operations", "9")]).contains("out of only 8"));
    assert!(refusal(&[("zipf_theta", "0.5"), ("hot_accesses_share", "0.1")]).contains("set one"));
    assert!(refusal(&[("hot_records_share", "0"), ("hot_accesses_share", "0.1")]).contains("hot area"));
}

#[test]
fn remote_records_are_other_nodes() {
    for theta in ["0", "0.9"] {
        let settings = [("remote", "true"), ("records_per_thread", "8"), ("zipf_theta", theta)];
        let scale = Scale { nodes: 4, workers: 1 };
        let ycsb = Ycsb::parse(scale, settings).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        for number in 0..500 {
            let client = Client { node: 3, worker: 0, number, serial: 0, now: Nanos(0) };
            let input = ycsb.draw_at(client, &mut rng);
            let mut keys = input.keys[..10].to_vec();
            assert!(keys.iter().all(|key| key % 4 != 3), "{keys:?}");
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), 10, "all different");
        }
        let few = [("remote", "true"), ("records_per_thread", "3"), ("operations", "10")];
        let refused = Ycsb::parse(scale, few).unwrap_err().to_string();
        assert!(refused.contains("10 different records of other nodes, and they have 9 of 12"), "{refused}");
    }
}
