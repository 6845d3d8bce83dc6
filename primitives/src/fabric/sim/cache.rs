//! Caches on the card: queue-pair contexts, state of READs in flight, address translations.
//!
//! A miss replaces an entry chosen by a fixed sequence of draws. With requests spread evenly over `n` tags that gives
//! the miss share `1 - entries / n` that fits Connect-IB's and ConnectX-3's sweeps over queue pairs, and a small
//! working set among many tags still hits. Nothing is hashed: a tag remembers the slot it was last in.

/// No slot yet.
pub(super) const NOWHERE: u32 = u32::MAX;

/// A cache of tags.
pub(super) struct Cache {
    slots: Vec<u32>,
    entries: usize,
    draw: u64,
}

impl Cache {
    /// A cache that grows up to `entries`.
    pub fn new(entries: f64) -> Cache {
        Cache { slots: Vec::new(), entries: entries as usize, draw: 1 }
    }

    /// Looks up `tag`, whose owner remembers it in `slot`, and brings it in. Says whether it was there.
    #[inline]
    pub fn touch(&mut self, tag: u32, slot: &mut u32) -> bool {
        if self.slots.get(*slot as usize) == Some(&tag) {
            return true;
        }
        if self.slots.len() < self.entries {
            // The first fill is free: a long run would have it behind itself.
            *slot = self.slots.len() as u32;
            self.slots.push(tag);
            return true;
        }
        self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let victim = ((self.draw >> 32) * self.slots.len() as u64) >> 32;
        self.slots[victim as usize] = tag;
        *slot = victim as u32;
        false
    }
}

/// Address translations: pages by the place their number falls on.
pub(super) struct Translations {
    pages: Vec<u64>,
    page_bytes: u64,
}

/// More than the pages of any simulated memory.
const PAGES_MAX: f64 = 65_536.0;

impl Translations {
    /// Translations for pages of `page_bytes`; none are kept if the stage is left out.
    pub fn new(entries: f64, page_bytes: f64, used: bool) -> Translations {
        let entries = if used { entries.min(PAGES_MAX) as usize } else { 0 };
        Translations { pages: vec![u64::MAX; entries], page_bytes: page_bytes as u64 }
    }

    /// Looks up the page of `offset` in the region that `key` names, and brings it in. Says whether it was there.
    #[inline]
    pub fn touch(&mut self, key: u32, offset: u64) -> bool {
        if self.pages.is_empty() {
            return true;
        }
        let page = (u64::from(key) << 40) ^ (offset / self.page_bytes);
        let place = page as usize % self.pages.len();
        std::mem::replace(&mut self.pages[place], page) == page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_use_misses_what_does_not_fit() {
        for (entries, tags) in [(100, 80), (100, 100), (100, 200), (100, 400)] {
            let mut cache = Cache::new(f64::from(entries));
            let mut slots = vec![NOWHERE; tags];
            let (mut misses, mut draw) = (0, 9u64);
            let touches = 40_000;
            for _ in 0..touches {
                draw = draw.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let tag = ((draw >> 33) % tags as u64) as u32;
                misses += u32::from(!cache.touch(tag, &mut slots[tag as usize]));
            }
            let share = f64::from(misses) / f64::from(touches);
            let want = (1.0 - f64::from(entries) / tags as f64).max(0.0);
            assert!((share - want).abs() < 0.02, "{entries} of {tags}: {share:.3}, want {want:.3}");
        }
    }

    #[test]
    fn pages_beyond_the_translations_miss() {
        let mut pages = Translations::new(4.0, 4096.0, true);
        assert!(!pages.touch(1, 0) && pages.touch(1, 4095));
        assert!(!pages.touch(1, 4 * 4096), "falls on the same place");
        assert!(!pages.touch(1, 0));
        assert!(Translations::new(4.0, 4096.0, false).touch(1, 0), "left out");
    }
}
