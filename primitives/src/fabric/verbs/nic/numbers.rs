//! Hardware numbers of queue pairs to their places.

/// Queue pair numbers to indices: open addressing over a table at most half full.
#[derive(Default)]
pub(super) struct Numbers {
    slots: Vec<(u32, u32)>,
    len: usize,
}

/// The number in a free place. Devices give numbers of 24 bits.
const FREE: u32 = u32::MAX;
/// And the index there, which no queue pair has.
const NOWHERE: u32 = u32::MAX;

impl Numbers {
    /// The index of a queue pair. Who asks for the number that free places have may be told one that no queue pair has: the index is
    /// looked up in their list anyway, and is not compared twice.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<usize> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = number as usize;
        while let Some(&(known, index)) = self.slots.get(at & mask) {
            if known == number {
                return Some(index as usize);
            }
            if known == FREE {
                return None;
            }
            at = at.wrapping_add(1);
        }
        None
    }

    pub(super) fn insert(&mut self, number: u32, index: u32) {
        if self.slots.len() < (self.len + 1) * 2 {
            let old = std::mem::take(&mut self.slots);
            self.slots = vec![(FREE, NOWHERE); ((self.len + 1) * 4).next_power_of_two()];
            for (number, index) in old.into_iter().filter(|slot| slot.0 != FREE) {
                self.place(number, index);
            }
        }
        self.place(number, index);
        self.len += 1;
    }

    fn place(&mut self, number: u32, index: u32) {
        let mask = self.slots.len() - 1;
        let mut at = number as usize & mask;
        while self.slots[at].0 != FREE {
            at = (at + 1) & mask;
        }
        self.slots[at] = (number, index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_find_every_queue_pair_and_no_other() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.get(17), None);
        // Consecutive ones as drivers give them, and ones that collide.
        let all: Vec<u32> = (17..60).chain((1..20).map(|n| n << 12)).collect();
        for (index, &number) in all.iter().enumerate() {
            numbers.insert(number, index as u32);
        }
        for (index, &number) in all.iter().enumerate() {
            assert_eq!(numbers.get(number), Some(index));
        }
        assert_eq!((numbers.get(16), numbers.get(1 << 23)), (None, None));
        assert!(
            numbers.get(u32::MAX).is_none_or(|index| index >= all.len()),
            "nobody's, whatever free places say"
        );
    }
}
