//! Percentiles of regret, by one definition for terminal and page.

/// Of values in ascending order the smallest that at least such a share of them does not exceed; so it is one of them, and of two in the
/// middle the lower. Nothing where there are none.
pub fn at_share(ascending: &[f64], share: f64) -> Option<f64> {
    // By division, not `ceil`: 19 of 20 are 0.95, while 0.55 of 100 would be a little more than 55.
    let reaches = |below: &usize| (below + 1) as f64 / ascending.len() as f64 >= share;
    let place = (0..ascending.len()).find(reaches);
    place.map(|place| ascending[place]).or(ascending.last().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_one_of_the_values_and_of_two_in_the_middle_the_lower() {
        let all: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            [0.0, 0.5, 0.55, 0.95, 1.0].map(|share| at_share(&all, share)),
            [1.0, 50.0, 55.0, 95.0, 100.0].map(Some)
        );
        assert_eq!((at_share(&all[..3], 0.5), at_share(&all[..20], 0.95)), (Some(2.0), Some(19.0)));
        assert_eq!((at_share(&all[..1], 0.5), at_share(&[], 0.5)), (Some(1.0), None));
    }
}
