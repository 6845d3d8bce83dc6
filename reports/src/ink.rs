//! Colours by meaning. One-sided work is blue, two-sided work is vermilion, hybrid plans are green, on every
//! figure of every page; the hues are from the colour-blind safe sets of Okabe and Ito and of Paul Tol.
//!
//! Each ink has a light and a dark value. Figures are drawn with the light values; the page's style sheet
//! maps each one to its dark value by attribute selector ([`dark_rules`]), so a figure stays plain SVG and no two
//! inks may share a light value.

use std::fmt::Write as _;

/// What a stroke or a fill means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ink {
    /// Words and main lines.
    Text,
    /// Secondary words: ticks, column heads, notes.
    Muted,
    /// Axis lines.
    Axis,
    /// Grid lines.
    Grid,
    /// The empty part of a bar.
    Track,
    /// The page itself.
    Paper,
    /// Words on top of a phase colour; the same in both schemes.
    OnFill,
    /// READ, and plans made of one-sided verbs only.
    OneSided,
    /// WRITE.
    Write,
    /// Compare-and-swap.
    Cas,
    /// Fetch-and-add.
    FetchAdd,
    /// RPC, and plans made of messages only.
    TwoSided,
    /// Plans that mix both.
    Hybrid,
    /// A second mixed plan in one panel.
    Hybrid2,
    /// A third mixed plan in one panel.
    Hybrid3,
    /// Anything else.
    Other,
    /// "Measured" chips.
    Measured,
    /// "Simulated" chips.
    Simulated,
    /// "Forecast" chips.
    Forecast,
    /// One of the seven stack colours (phases, abort causes), taken modulo seven.
    Stack(u8),
}

const STACK: [(u32, u32); 7] = [
    (0x77AADD, 0x6C9CCC),
    (0xEE8866, 0xDB7A5A),
    (0xEEDD88, 0xD9C878),
    (0xFFAABB, 0xE899AA),
    (0x44BB99, 0x3EAD8D),
    (0xBBCC33, 0xA9B92E),
    (0xC4C8CC, 0x8F959B),
];

const NAMED: [Ink; 19] = [
    Ink::Text,
    Ink::Muted,
    Ink::Axis,
    Ink::Grid,
    Ink::Track,
    Ink::Paper,
    Ink::OnFill,
    Ink::OneSided,
    Ink::Write,
    Ink::Cas,
    Ink::FetchAdd,
    Ink::TwoSided,
    Ink::Hybrid,
    Ink::Hybrid2,
    Ink::Hybrid3,
    Ink::Other,
    Ink::Measured,
    Ink::Simulated,
    Ink::Forecast,
];

impl Ink {
    /// The colour on light and on dark paper, as `0xRRGGBB`.
    pub fn values(self) -> (u32, u32) {
        match self {
            Ink::Text => (0x1B1F24, 0xE6E8EB),
            Ink::Muted => (0x5B6570, 0x9AA4AF),
            Ink::Axis => (0xB4BBC3, 0x535C66),
            Ink::Grid => (0xE6E9EC, 0x2B3138),
            Ink::Track => (0xF2F4F6, 0x20252B),
            Ink::Paper => (0xFFFFFF, 0x14171B),
            Ink::OnFill => (0x15181C, 0x15181C),
            Ink::OneSided => (0x0067A8, 0x5AAEEE),
            Ink::Write => (0x45A0D8, 0x97D1F5),
            Ink::Cas => (0x6F52A0, 0xB39AE2),
            Ink::FetchAdd => (0xB47CC0, 0xDCBDE8),
            Ink::TwoSided => (0xC64F08, 0xF28E52),
            Ink::Hybrid => (0x00805E, 0x3FC79D),
            Ink::Hybrid2 => (0x6E8B1E, 0xB4CF5A),
            Ink::Hybrid3 => (0x2B7C88, 0x6CC5D2),
            Ink::Other => (0x6A737C, 0xA3ACB5),
            Ink::Measured => (0x175E3C, 0x7FD3A9),
            Ink::Simulated => (0x7A4E00, 0xE0B25C),
            Ink::Forecast => (0x5E3B8C, 0xC3A6EC),
            Ink::Stack(i) => STACK[usize::from(i) % STACK.len()],
        }
    }

    /// Red, green and blue on light paper.
    pub fn rgb(self) -> (u8, u8, u8) {
        let [_, r, g, b] = self.values().0.to_be_bytes();
        (r, g, b)
    }

    /// The colour on light paper as CSS writes it.
    pub fn css(self) -> String {
        format!("#{:06X}", self.values().0)
    }

    fn all() -> impl Iterator<Item = Ink> {
        NAMED.into_iter().chain((0..STACK.len() as u8).map(Ink::Stack))
    }
}

/// The ink of a verb, a primitive family or a plan, judged by its name.
///
/// Named plans follow the papers: DrTM+R is one-sided throughout, FaSST is messages throughout; a name that
/// mentions neither or both families is a hybrid.
pub fn for_name(name: &str) -> Ink {
    match name {
        "read" | "one-sided" | "drtm-r" => Ink::OneSided,
        "write" => Ink::Write,
        "cas" => Ink::Cas,
        "fetch-add" => Ink::FetchAdd,
        "rpc" | "two-sided" | "fasst" | "fasst-occ" => Ink::TwoSided,
        // A description that begins with a plan that mixes both: `drtm-h, log two-sided`.
        _ if ["hybrid", "drtm-h", "farm"].iter().any(|mixed| name.contains(mixed)) => Ink::Hybrid,
        // Or of one that does not: `tuned (drtm-r)`, `fasst, 16 coroutines`.
        _ => match (
            ["one-sided", "drtm-r"].iter().any(|one| name.contains(one)),
            ["two-sided", "fasst"].iter().any(|two| name.contains(two)),
        ) {
            (true, false) => Ink::OneSided,
            (false, true) => Ink::TwoSided,
            _ => Ink::Hybrid,
        },
    }
}

/// Inks for several names in one panel: the family's colour, with hybrids told apart.
pub fn for_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Ink> {
    let mut hybrids = [Ink::Hybrid, Ink::Hybrid2, Ink::Hybrid3].into_iter();
    let pick = |name| match for_name(name) {
        Ink::Hybrid => hybrids.next().unwrap_or(Ink::Other),
        ink => ink,
    };
    names.into_iter().map(pick).collect()
}

/// CSS rules that turn the light values inside figures into dark ones.
pub fn dark_rules() -> String {
    let mut css = String::new();
    for ink in Ink::all() {
        let (light, dark) = ink.values();
        if light != dark {
            let _ = write!(
                css,
                "figure svg [fill=\"#{light:06X}\"]{{fill:#{dark:06X}}}figure svg [stroke=\"#{light:06X}\"]{{stroke:#{dark:06X}}}"
            );
        }
    }
    css
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_inks_share_a_light_value() {
        let values: BTreeSet<u32> = Ink::all().map(|ink| ink.values().0).collect();
        assert_eq!(values.len(), Ink::all().count());
    }

    #[test]
    fn families_keep_their_colour() {
        assert_eq!(for_name("one-sided"), Ink::OneSided);
        assert_eq!(for_name("two-sided"), Ink::TwoSided);
        assert_eq!(for_name("fetch one-sided, lock two-sided"), Ink::Hybrid);
        assert_eq!(for_name("tuned (drtm-r)"), Ink::OneSided);
        assert_eq!(for_name("fasst, 16 coroutines"), Ink::TwoSided);
        assert_eq!(for_name("drtm-r, log two-sided"), Ink::Hybrid);
        assert_eq!(for_names(["drtm-h", "tuned"]), [Ink::Hybrid, Ink::Hybrid2]);
    }
}
