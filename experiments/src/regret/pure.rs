//! The best pure plans beside the best of all, of points that were given: their columns, and the table that people see.

use primitives::measure::Row;

use super::race::{Pure, Rate, Runner};
use crate::output::{change, human_rate, percent, table};

/// The row with what the best pure plans are and get; as it is where none were looked for.
pub(super) fn with(row: Row, pure: Option<&Pure<'_>>) -> Row {
    let Some(pure) = pure else { return row };
    let plan = |one: &Option<(Runner<'_>, Rate)>| one.map(|(runner, _)| runner.candidate.plan.to_string());
    let rate = |one: &Option<(Runner<'_>, Rate)>| one.map(|(_, rate)| rate.per_s);
    row.with("best_one_sided", plan(&pure.one_sided))
        .with("best_one_sided_per_s", rate(&pure.one_sided))
        .with("best_two_sided", plan(&pure.two_sided))
        .with("best_two_sided_per_s", rate(&pure.two_sided))
        .with("mixing_gain", pure.gain.map(|(gain, _)| gain))
        .with("mixing_gain_error", pure.gain.map(|(_, error)| error))
}

/// Points that were given, as a table: the best pure plans, the best of all, and what the tuner's choice loses against that.
pub fn best_of_all(axes: &[String], rows: &[Row]) -> String {
    let rate = |row: &Row, column: &str| row.number(column).map_or_else(|| "none".to_owned(), human_rate);
    let share = |row: &Row, column: &str, shown: fn(f64) -> String| {
        let off = row.number(&format!("{column}_error")).map(|off| format!(" ± {}", percent(off)));
        row.number(column).map_or_else(String::new, |share| shown(share) + &off.unwrap_or_default())
    };
    let cells = |row: &Row| {
        let at = axes.iter().map(|axis| row.get(&format!("axis_{axis}")).unwrap_or_default().to_owned());
        let rates =
            ["best_one_sided_per_s", "best_two_sided_per_s", "best_per_s"].map(|column| rate(row, column));
        let shares = [share(row, "mixing_gain", change), share(row, "regret", percent)];
        at.chain(rates).chain(shares).collect::<Vec<String>>()
    };
    let heads = ["one-sided", "two-sided", "best of all", "gain of mixing", "tuner's regret"];
    let head: Vec<&str> = axes.iter().map(String::as_str).chain(heads).collect();
    table(&head, rows.iter().map(cells))
}
