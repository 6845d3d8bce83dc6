//! Colours by meaning. One-sided work is blue, two-sided work is vermilion, hybrid plans are green, and what is of none of
//! these, or of several, is grey, on every figure of every page; the hues are from the colour-blind safe sets of Okabe and Ito
//! and of Paul Tol. Several curves of one meaning differ in shade, then in dash, never in hue ([`looks`]). Stacked bars alone
//! have colours that mean nothing else, and a key.
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
    /// RPC that carries the payload to its server, and a second curve of messages in one panel.
    TwoSided2,
    /// A third curve of messages in one panel.
    TwoSided3,
    /// Plans that mix both.
    Hybrid,
    /// A second mixed plan in one panel.
    Hybrid2,
    /// A third mixed plan in one panel.
    Hybrid3,
    /// Anything else.
    Other,
    /// A second of anything else in one panel.
    Other2,
    /// A third of anything else in one panel.
    Other3,
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

const NAMED: [Ink; 23] = [
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
    Ink::TwoSided2,
    Ink::TwoSided3,
    Ink::Hybrid,
    Ink::Hybrid2,
    Ink::Hybrid3,
    Ink::Other,
    Ink::Other2,
    Ink::Other3,
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
            Ink::Cas => (0x12255C, 0x7C93E8),
            Ink::FetchAdd => (0x7488DC, 0xB9C6FA),
            Ink::TwoSided => (0xC64F08, 0xF28E52),
            Ink::TwoSided2 => (0xE58A2F, 0xF8C48E),
            Ink::TwoSided3 => (0x7E2E00, 0xC9764A),
            Ink::Hybrid => (0x00805E, 0x3FC79D),
            Ink::Hybrid2 => (0x6E8B1E, 0xB4CF5A),
            Ink::Hybrid3 => (0x2B7C88, 0x6CC5D2),
            Ink::Other => (0x6A737C, 0xA3ACB5),
            Ink::Other2 => (0x2C3238, 0xDDE1E5),
            Ink::Other3 => (0xA0A8B0, 0x717A83),
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

/// The ink of a verb, a primitive family or a plan, judged by its name; [`Ink::Other`] for a name that says nothing of them, as
/// that of a card or a protocol does.
///
/// Named plans follow the papers: DrTM+R is one-sided throughout, FaSST is messages throughout; a name that
/// mentions both families is a hybrid.
pub fn for_name(name: &str) -> Ink {
    let lower = name.to_lowercase().replace('_', "-");
    // A description that begins with a plan that mixes both: `drtm-h, log two-sided`. What the tuner chose mostly does.
    if ["hybrid", "drtm-h", "farm", "tuned", "verified"].iter().any(|mixed| lower.contains(mixed)) {
        // Or `tuned (drtm-r)`, which says what it is.
        let inner = lower.strip_prefix("tuned").map_or(Ink::Other, for_name);
        return if inner == Ink::Other { Ink::Hybrid } else { inner };
    }
    let mut found: Option<Ink> = None;
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    for ink in words.filter_map(for_word) {
        found = match found {
            Some(before) if family(before) != family(ink) => return Ink::Hybrid,
            // The first says which verb it is.
            before => before.or(Some(ink)),
        };
    }
    found.unwrap_or(Ink::Other)
}

/// The ink of one word: a verb as a whole, a family or a plan also as a part of it (`one-sided-passive`, `fasst-occ`).
fn for_word(word: &str) -> Option<Ink> {
    match word {
        "read" => Some(Ink::OneSided),
        "write" => Some(Ink::Write),
        "cas" => Some(Ink::Cas),
        "fetch-add" => Some(Ink::FetchAdd),
        "rpc" | "send" => Some(Ink::TwoSided),
        "rpc-write" => Some(Ink::TwoSided2),
        // By what carries it: WRITEs, or a mixture.
        "rpc-two-writes" => Some(Ink::Write),
        "rpc-write-imm" => Some(Ink::OneSided),
        "rpc-write-send" => Some(Ink::Hybrid),
        _ if ["one-sided", "drtm-r"].iter().any(|one| word.contains(one)) => Some(Ink::OneSided),
        _ if ["two-sided", "fasst"].iter().any(|two| word.contains(two)) => Some(Ink::TwoSided),
        _ => None,
    }
}

/// The shades of one meaning, of which `ink` is one.
fn family(ink: Ink) -> &'static [Ink] {
    match ink {
        Ink::OneSided | Ink::Write | Ink::Cas | Ink::FetchAdd => {
            &[Ink::OneSided, Ink::Write, Ink::Cas, Ink::FetchAdd]
        }
        Ink::TwoSided | Ink::TwoSided2 | Ink::TwoSided3 => &[Ink::TwoSided, Ink::TwoSided2, Ink::TwoSided3],
        Ink::Hybrid | Ink::Hybrid2 | Ink::Hybrid3 => &[Ink::Hybrid, Ink::Hybrid2, Ink::Hybrid3],
        _ => &[Ink::Other, Ink::Other2, Ink::Other3],
    }
}

/// How a line is drawn, or a bar filled: no more than what tells it from others of its ink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dash {
    /// Throughout.
    #[default]
    Solid,
    /// Long strokes.
    Dashed,
    /// Short ones.
    Dotted,
    /// Both in turn.
    Mixed,
}

impl Dash {
    const ALL: [Dash; 4] = [Dash::Solid, Dash::Dashed, Dash::Dotted, Dash::Mixed];
}

/// A colour, which says what something is, and a dash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Look {
    /// Its colour.
    pub ink: Ink,
    /// How it is drawn.
    pub dash: Dash,
}

impl From<Ink> for Look {
    fn from(ink: Ink) -> Look {
        Look { ink, dash: Dash::Solid }
    }
}

/// Looks of several things in one panel that are of these inks, told apart. Where all are of one meaning, they differ in its shades
/// and, when these are used up, in dashes. Beside others a shade of one-sided or of two-sided says which verb, so that what differs
/// else, as two cards do, is a dash: the same for each verb.
pub fn looks(inks: &[Ink]) -> Vec<Look> {
    let dashes = Dash::ALL.len();
    let look = |(i, ink): (usize, &Ink)| {
        let shades = family(*ink);
        let before = inks[..i].iter().filter(|other| *other == ink).count();
        let of_verbs = [Ink::OneSided, Ink::TwoSided].contains(&shades[0]);
        let free = inks.iter().all(|other| other == ink || family(*other) != shades);
        let (shade, dash) = match free {
            true if !of_verbs || inks.iter().all(|other| other == ink) => {
                (before % shades.len(), before / shades.len())
            }
            true => (before / dashes, before % dashes),
            false => (0, before),
        };
        let first = shades.iter().position(|shade| shade == ink);
        let ink = first.map_or(*ink, |first| shades[(first + shade) % shades.len()]);
        Look { ink, dash: Dash::ALL[dash % dashes] }
    };
    inks.iter().enumerate().map(look).collect()
}

/// [`looks`] of several names.
pub fn for_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Look> {
    looks(&names.into_iter().map(for_name).collect::<Vec<_>>())
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
        assert_eq!(["tuned", "verified"].map(for_name), [Ink::Hybrid; 2]);
        assert_eq!(for_names(["drtm-h", "tuned"]), [Ink::Hybrid, Ink::Hybrid2].map(Look::from));
    }

    #[test]
    fn verbs_have_the_hue_of_their_family_however_they_are_spelled() {
        for (name, ink) in [
            ("READ, 1 QP", Ink::OneSided),
            ("16 QP, WRITE", Ink::Write),
            ("CAS, aries", Ink::Cas),
            ("FETCH_ADD", Ink::FetchAdd),
            ("RPC, 64 B", Ink::TwoSided),
            ("rpc-write", Ink::TwoSided2),
            ("rpc-two-writes", Ink::Write),
            ("rpc-write-imm", Ink::OneSided),
            ("rpc-write-send", Ink::Hybrid),
            ("READ and RPC", Ink::Hybrid),
            ("write-log", Ink::Other),
            ("cpu-cas", Ink::Other),
            ("timestamp-both", Ink::Other),
            ("MVCC", Ink::Other),
            ("cx5", Ink::Other),
        ] {
            assert_eq!(for_name(name), ink, "{name}");
        }
    }

    /// Whatever many curves there are, no two look alike, and none has a hue that is not its own.
    #[test]
    fn curves_of_one_meaning_differ_in_shade_then_in_dash() {
        let (one, two) = (Ink::OneSided, Ink::TwoSided);
        let panels: [&[Ink]; 5] = [
            &[one, one, Ink::Write, Ink::Write, Ink::Cas, Ink::Cas, two, two],
            &[one, one, one, one, one, one, two, two],
            &[Ink::Other; 8],
            &[Ink::Hybrid; 8],
            &[Ink::Write; 8],
        ];
        for inks in panels {
            let looks = looks(inks);
            assert_eq!(looks.iter().collect::<BTreeSet<_>>().len(), inks.len(), "{looks:?}");
            assert!(looks.iter().zip(inks).all(|(look, ink)| family(look.ink) == family(*ink)), "{looks:?}");
        }
        // Verbs of two cards: the shade is the verb's, the dash the card's.
        let both = looks(&[one, one, Ink::Write, Ink::Write, two, two]);
        assert_eq!(
            both.iter().map(|look| look.ink).collect::<Vec<_>>(),
            [one, one, Ink::Write, Ink::Write, two, two]
        );
        let dashes: Vec<Dash> = both.iter().map(|look| look.dash).collect();
        assert!(dashes.chunks(2).all(|pair| pair == [Dash::Solid, Dash::Dashed]), "{dashes:?}");
    }
}
