//! Random spoiling, the same on every machine.
//!
//! The number of cases is set by `CORELANE_FUZZ_CASES`, the seed by `CORELANE_FUZZ_SEED`; a case that panics is named by
//! its number, and the same seed gives the same cases. `CORELANE_FUZZ_FROM` begins with the case of that number.

const CASES: u64 = 20_000;

/// Numbers that readers are known to stumble over, as they stand in a frame.
const TRAPS: [&[u8]; 12] = [
    &[0xff; 4],
    &[0x7f, 0xff, 0xff, 0xff],
    &[0x80, 0, 0, 0],
    &[0, 0, 0, 0],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0x80, 0x80, 0x80, 0x80, 0x08],
    &[0xfe, 0xff, 0xff, 0xff, 0x0f],
    &[0x7f, 0xff],
    &[0x80, 0],
    &[0xff, 0xfe],
    &[0xff; 10],
];

/// A small generator of numbers, the same on every machine.
pub struct Dice(u64);

impl Dice {
    /// Dice that fall alike for the same number.
    pub fn of(number: u64) -> Self {
        Self(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Other dice, decided by these.
    pub fn other(&mut self) -> Self {
        Self(self.roll() | 1)
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.roll() >> 32).unwrap() % end.max(1)
    }

    /// Spoils at most `bytes_max` bytes from `from` on; what lies behind stays, shifted or not.
    pub fn spoil_near(&mut self, bytes: &mut Vec<u8>, from: usize, bytes_max: usize) {
        let from = from.min(bytes.len());
        let behind = bytes.split_off(bytes.len().min(from + bytes_max));
        let length = bytes.len();
        self.spoil(bytes, from);
        if self.below(4) > 0 {
            bytes.resize(length, 0);
        }
        bytes.extend(behind);
    }

    /// Spoils `bytes` in one to four places from `from` on.
    pub fn spoil(&mut self, bytes: &mut Vec<u8>, from: usize) {
        for _ in 0..=self.below(4) {
            let at = from + self.below(bytes.len().saturating_sub(from));
            match self.below(6) {
                _ if at >= bytes.len() => {}
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.roll().to_be_bytes()[0],
                2 => bytes.truncate(at),
                3 => drop(bytes.splice(at..at, self.trap().iter().copied())),
                4 => {
                    let trap = self.trap();
                    let end = bytes.len().min(at + trap.len());
                    bytes[at..end].copy_from_slice(&trap[..end - at]);
                }
                _ => {
                    let end = at + self.below(bytes.len() - at);
                    let copied = bytes[at..end].to_vec();
                    bytes.splice(at..at, copied);
                }
            }
        }
    }

    pub fn trap(&mut self) -> &'static [u8] {
        TRAPS[self.below(TRAPS.len())]
    }
}

fn number_of(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

/// Runs a case after the other, one of `share` that are asked for; says which one it was if one panics.
pub fn run(share: u64, mut case: impl FnMut(&mut Dice) -> usize) -> usize {
    struct Number(u64);
    impl Drop for Number {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("case {} panicked", self.0);
            }
        }
    }
    let seed = number_of("CORELANE_FUZZ_SEED", 1);
    let mut passed = 0;
    for number in number_of("CORELANE_FUZZ_FROM", 0)..number_of("CORELANE_FUZZ_CASES", CASES).div_ceil(share) {
        let _number = Number(number);
        let mut dice = Dice::of(seed << 32 | number);
        passed += case(&mut dice);
    }
    passed
}
