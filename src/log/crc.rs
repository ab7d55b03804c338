//! CRC-32C over a file that grows: resumable from the value that was written down.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of everything that was added so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunningCrc(u32);

impl RunningCrc {
    /// Goes on behind bytes whose checksum is `value`.
    #[must_use]
    pub fn resume(value: u32) -> Self {
        Self(value)
    }

    /// Adds `bytes` at the end.
    pub fn add(&mut self, bytes: &[u8]) {
        // The final inversion of CRC-32C is its own inverse, so the value is the state.
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!self.0));
        digest.update(bytes);
        self.0 = low_half(digest.finalize());
    }

    /// The checksum.
    #[must_use]
    pub fn value(self) -> u32 {
        self.0
    }
}

fn low_half(checksum: u64) -> u32 {
    let bytes = checksum.to_le_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_checksum_equals_that_of_the_whole_at_every_cut() {
        let bytes: Vec<u8> = (0..=255).cycle().take(700).collect();
        for cut in 0..bytes.len() {
            let mut first = RunningCrc::default();
            first.add(&bytes[..cut]);
            let mut rest = RunningCrc::resume(first.value());
            rest.add(&bytes[cut..]);
            assert_eq!(rest.value(), crc32c(&bytes), "cut at byte {cut}");
        }
    }

    #[test]
    fn it_is_the_castagnoli_polynomial() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
