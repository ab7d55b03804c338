//! Random numbers whose seed a failed test prints.

use std::time::SystemTime;

/// xorshift64*.
pub struct Random {
    state: u64,
}

impl Random {
    /// A new seed each time, or the one of `TEST_SEED`.
    pub fn new(what: &str) -> Self {
        let given = std::env::var("TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = given.unwrap_or(now) | 1;
        println!("{what}: TEST_SEED={seed}");
        Self { state: seed }
    }

    /// For a part of a test that has its seed from another one.
    pub fn from_seed(seed: u64) -> Self {
        Self { state: seed | 1 }
    }

    pub fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}
