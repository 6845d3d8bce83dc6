//! Where an experiment's values are written, for what is wrong with several of them together.

use super::grid::{Point, turn};
use crate::error::CliError;
use crate::yaml::Document;

/// A line and a column, from 1.
pub(super) type At = (u64, u64);

/// The places of an experiment file.
#[derive(Clone, Debug, PartialEq)]
pub struct Places {
    /// The file.
    pub(super) document: Document,
    /// What holds for all points, by key.
    pub(super) base: Vec<(String, At)>,
    /// The values of each axis.
    pub(super) axes: Vec<(String, Vec<At>)>,
}

impl Places {
    /// What is wrong with a point, told at the value of the first of `keys` that the file has; at its start if it has none.
    pub fn blame(&self, point: &Point, keys: &[&str], error: CliError) -> CliError {
        let (line, column) = keys.iter().find_map(|key| self.of(point, key)).unwrap_or((1, 1));
        let who = match point.at.is_empty() {
            true => point.label(),
            false => format!("point {} of the grid, {}", point.index, point.label()),
        };
        self.document.blame(line, column, &who, error)
    }

    fn of(&self, point: &Point, key: &str) -> Option<At> {
        let lengths: Vec<usize> = self.axes.iter().map(|(_, values)| values.len()).collect();
        let of_axis = self.axes.iter().position(|(axis, _)| axis == key);
        let of_axis = of_axis.map(|number| self.axes[number].1[turn(point.index, &lengths, number)]);
        of_axis.or_else(|| self.base.iter().find(|(written, _)| written == key).map(|(_, at)| *at))
    }
}
