use super::*;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;

fn small(settings: &[(&'static str, &'static str)]) -> CustomerPosition {
    let sizes = [("load_units", "3"), ("customers_per_load_unit", "50"), ("trades_per_account", "12")];
    let mut all = sizes.to_vec();
    all.retain(|(key, _)| !settings.iter().any(|(set, _)| set == key));
    all.extend(settings);
    CustomerPosition::parse(Scale { nodes: 2, workers: 1 }, all).expect("settings of a test")
}

fn filled(w: &CustomerPosition, record: RecordId) -> Vec<u64> {
    let mut words = vec![0; w.tables()[usize::from(record.table)].payload_bytes as usize / 8];
    w.fill(record, &mut words);
    words
}

#[test]
fn a_load_unit_has_the_proportions_of_the_specification() {
    let w = small(&[("load_units", "5"), ("customers_per_load_unit", "1000")]);
    let p = w.population();
    assert_eq!((p.customers, p.securities()), (5_000, 3_425));
    let count = |tier| (0..p.customers).filter(|&c| p.tier(c) == tier).count();
    assert_eq!([0, 1, 2].map(count), [1_000, 3_000, 1_000]);
    let accounts: u64 = (0..p.customers).map(|c| p.accounts(c)).sum();
    assert_eq!(accounts, 25_000);
    let holdings: u64 = (0..p.customers).map(|c| p.holdings_of(c)).sum();
    let mean = holdings as f64 / accounts as f64;
    assert!((mean - 10.0).abs() < 0.2, "{mean} securities an account");
    for c in 0..p.customers {
        let range = [1..=4, 2..=8, 5..=10][p.tier(c)].clone();
        assert!(range.contains(&p.accounts(c)));
        assert!((0..p.accounts(c)).all(|a| (2..=18).contains(&p.holdings(c, a))));
    }
}

#[test]
fn keys_are_those_of_their_node_and_records_find_each_other() {
    let w = small(&[]);
    let p = w.population();
    for (number, def) in w.tables().iter().enumerate() {
        let mut all = 0;
        for node in 0..2 {
            let keys: Vec<u64> = p.keys(number as u16, node).collect();
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{}", def.name);
            assert!(keys.iter().all(|key| key / def.keys_per_block % 2 == node), "{}", def.name);
            assert!(keys.len() as u64 <= def.capacity_per_node);
            all += keys.len() as u64;
        }
        assert_eq!(all, def.records, "{}", def.name);
        assert!(all > 0, "{}", def.name);
    }
    let taxes: BTreeSet<u64> = (0..p.customers).map(|c| p.tax(c)).collect();
    assert_eq!(taxes.len() as u64, p.customers);
    for c in 0..p.customers {
        assert_eq!(filled(&w, key::tax(c % 2, p.tax(c))), [c]);
        let customer = filled(&w, key::customer(c));
        assert_eq!(customer[columns::customer::TIER.word()], p.tier(c) as u64 + 1);
        for a in 0..p.accounts(c) {
            let held: BTreeSet<u64> = (0..p.holdings(c, a)).map(|n| p.security(c, a, n)).collect();
            assert_eq!(held.len() as u64, p.holdings(c, a), "different securities");
            assert!(held.iter().all(|s| (1..=p.securities()).contains(s)));
            let trade = filled(&w, key::trade(c, a, 3));
            assert!(held.contains(&trade[columns::trade::S_SYMB.word()]), "of a security that is held");
        }
    }
    for s in 1..=p.securities() {
        let price = filled(&w, key::last_trade(s))[columns::last_trade::PRICE.word()];
        assert!((2_000..=3_000).contains(&price));
    }
}

#[test]
fn customers_are_drawn_by_tier_and_unevenly_within() {
    let w = small(&[("load_units", "2"), ("customers_per_load_unit", "1000"), ("local_customers", "false")]);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    let (mut tiers, mut halves) = ([0u32; 3], [0u32; 2]);
    let draws = 60_000;
    for _ in 0..draws {
        let c = w.customer(Client::default(), &mut rng);
        let tier = w.population().tier(c);
        tiers[tier] += 1;
        if tier == 1 {
            halves[usize::from(c % 1_000 >= 500)] += 1;
        }
    }
    for (got, share) in tiers.into_iter().zip([0.1, 0.6, 0.3]) {
        let near = 5.0 * (share * (1.0 - share) / f64::from(draws)).sqrt();
        assert!((f64::from(got) / f64::from(draws) - share).abs() < near, "{tiers:?}");
    }
    // By the formula, (1001² - 700²) / (1300² - 700²) of the middle tier's draws are of its first half.
    let first = f64::from(halves[0]) / f64::from(tiers[1]);
    let expected = (1_001.0f64.powi(2) - 700.0f64.powi(2)) / (1_300.0f64.powi(2) - 700.0f64.powi(2));
    assert!((first - expected).abs() < 0.02, "{first} for {expected}");
}

#[test]
fn own_customers_and_shares_of_frames() {
    let w = small(&[("market_feed", "1"), ("customer_position", "3")]);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    let client = Client { node: 1, ..Client::default() };
    let (mut feeds, mut by_tax, mut history) = (0, 0, 0);
    for _ in 0..8_000 {
        match w.draw_at(client, &mut rng).job {
            Job::Feed(feed) => {
                feeds += 1;
                let securities: BTreeSet<u32> = feed.tickers.iter().map(|t| t.security).collect();
                assert_eq!(securities.len(), FEED, "different securities");
            }
            Job::Position(p) => {
                assert_eq!((p.node, p.customer % 2), (1, 1));
                assert_eq!(p.tax, w.population().tax(p.customer));
                by_tax += u32::from(p.by_tax);
                history += u32::from(p.history);
            }
        }
    }
    assert!((1_800..2_200).contains(&feeds), "{feeds}");
    assert!((2_800..3_200).contains(&by_tax) && (2_800..3_200).contains(&history), "{by_tax} {history}");
}

#[test]
fn settings_that_cannot_work_are_refused_with_the_reason() {
    let refusal = |settings: &[(&str, &str)]| {
        let scale = Scale { nodes: 1, workers: 1 };
        CustomerPosition::parse(scale, settings.iter().copied()).unwrap_err().to_string()
    };
    assert!(refusal(&[("customer_position", "0")]).contains("all weights"));
    let few = [("load_units", "1"), ("customers_per_load_unit", "10"), ("market_feed", "1")];
    assert!(refusal(&few).contains("20 different ones"));
    assert!(refusal(&[("customers_per_load_unit", "1001")]).contains("from 10 to 1000"));
}
