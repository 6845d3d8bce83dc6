//! Doorbell registers: where posts of several threads meet before any queue of the card.
//!
//! A device context maps a few registers; its queue pairs get one each while there are private ones, and share the
//! rest in turn (mlx4: seven private, one shared, DrTM+H s3.1; mlx5: 16 usable, libmlx5). A register that queue pairs
//! of several threads share is taken with a lock: a core waits until it is free and pays for taking it from another
//! core, which is why threads of one shared context lose up to 63 % of their WRITEs (DrTM+H figure 3a). A context of a
//! thread's own costs nothing here.

/// One register.
struct Register {
    owner: u32,
    contended: bool,
    last: u32,
    free_at: u64,
}

/// The registers of a device context.
pub(super) struct Registers {
    all: Vec<Register>,
    private: u32,
    shared: u32,
    pairs: u32,
}

impl Registers {
    pub fn new(private: f64, shared: f64) -> Registers {
        Registers { all: Vec::new(), private: private as u32, shared: shared as u32, pairs: 0 }
    }

    /// The register of a new queue pair of `core`.
    pub fn assign(&mut self, core: u32) -> u32 {
        let pair = self.pairs;
        self.pairs += 1;
        let register =
            if pair < self.private { pair } else { self.private + (pair - self.private) % self.shared };
        match self.all.get_mut(register as usize) {
            Some(r) => r.contended |= r.owner != core,
            // Registers are handed out in order, so a new one is the next.
            None => self.all.push(Register { owner: core, contended: false, last: core, free_at: 0 }),
        }
        register
    }

    /// A core at time `at` rings a register; `hold` is how long the doorbell itself takes. Returns the core's time
    /// once it has the lock, if one is needed.
    #[inline]
    pub fn ring(&mut self, register: u32, core: u32, at: u64, hold: u64, lock: u64) -> u64 {
        let r = &mut self.all[register as usize];
        if !r.contended {
            return at;
        }
        let moved = if r.last == core { 0 } else { lock };
        let taken = at.max(r.free_at) + moved;
        r.last = core;
        r.free_at = taken + hold;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_registers_first_then_turns_on_the_shared_ones() {
        let mut registers = Registers::new(2.0, 2.0);
        let got: Vec<u32> = (0..6).map(|core| registers.assign(core)).collect();
        assert_eq!(got, [0, 1, 2, 3, 2, 3]);
        assert_eq!(registers.ring(0, 0, 100, 50, 30), 100, "private: no lock");
        assert_eq!(registers.ring(2, 2, 100, 50, 30), 100, "its last user has it still");
        assert_eq!(registers.ring(2, 4, 100, 50, 30), 180, "waits for the doorbell, then pays for the lock");
    }

    #[test]
    fn a_thread_of_its_own_never_waits() {
        let mut registers = Registers::new(0.0, 1.0);
        for _ in 0..4 {
            assert_eq!(registers.assign(7), 0);
        }
        assert_eq!(registers.ring(0, 7, 10, 50, 30), 10);
        assert_eq!(registers.ring(0, 7, 10, 50, 30), 10);
    }
}
