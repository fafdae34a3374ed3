//! Numbers that look random and are the same in every run.

pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number below `end`, or 0 if there is none.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        // xorshift64*, by Vigna.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16;
        usize::try_from(number).unwrap() % end.max(1)
    }
}
