//! `.txnindex`: the aborted transactions of one segment, in Kafka's file format.
//!
//! ```text
//! 34 bytes an entry, big-endian: version i16 = 0 | producer id i64 | first offset i64 | last offset i64
//! | last stable offset i64; ordered by last offset
//! ```
//! Source: apache/kafka `AbortedTxn.java`, `TransactionIndex.java`.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::ids::{Offset, ProducerId};
pub use crate::state::compaction::transactions::AbortedTxn;

/// Bytes of one entry.
pub const ENTRY_BYTES: usize = 34;
const VERSION: i16 = 0;

/// Why an abort index cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TxnIndexDamage {
    /// Not a whole number of entries.
    #[error("the size is no multiple of an entry")]
    Size,
    /// An entry of a version that is not known.
    #[error("unknown version {0}")]
    Version(i16),
    /// Entries that do not ascend, or that end before they begin.
    #[error("entries that do not ascend")]
    Order,
}

/// Reads an abort index.
///
/// # Errors
/// Says what does not fit; it is made anew from the segment then.
pub fn decode(file: &[u8]) -> Result<Vec<AbortedTxn>, TxnIndexDamage> {
    if !file.len().is_multiple_of(ENTRY_BYTES) {
        return Err(TxnIndexDamage::Size);
    }
    let entries = file.chunks_exact(ENTRY_BYTES).map(decode_entry).collect::<Result<Vec<_>, _>>()?;
    let ascends = entries.windows(2).all(|two| two[0].last_offset < two[1].last_offset);
    let has_sense = entries.iter().all(|entry| entry.first_offset.0 >= 0 && entry.first_offset <= entry.last_offset);
    if ascends && has_sense { Ok(entries) } else { Err(TxnIndexDamage::Order) }
}

fn decode_entry(mut entry: &[u8]) -> Result<AbortedTxn, TxnIndexDamage> {
    let version = entry.get_i16();
    if version != VERSION {
        return Err(TxnIndexDamage::Version(version));
    }
    Ok(AbortedTxn {
        producer_id: ProducerId(entry.get_i64()),
        first_offset: Offset(entry.get_i64()),
        last_offset: Offset(entry.get_i64()),
        last_stable_offset: Offset(entry.get_i64()),
    })
}

/// The bytes of an abort index.
#[must_use]
pub fn encode(entries: &[AbortedTxn]) -> Bytes {
    let mut file = BytesMut::with_capacity(entries.len() * ENTRY_BYTES);
    for entry in entries {
        file.put_i16(VERSION);
        file.put_i64(entry.producer_id.0);
        file.put_i64(entry.first_offset.0);
        file.put_i64(entry.last_offset.0);
        file.put_i64(entry.last_stable_offset.0);
    }
    file.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(first: i64, last: i64) -> Vec<u8> {
        let mut bytes = 0_i16.to_be_bytes().to_vec();
        for number in [7, first, last, first] {
            bytes.extend_from_slice(&i64::to_be_bytes(number));
        }
        bytes
    }

    #[test]
    fn entries_are_read_and_nonsense_is_refused() {
        let read = decode(&[entry(3, 9), entry(5, 12)].concat()).unwrap();
        assert_eq!(
            (read[1].producer_id, read[1].first_offset, read[1].last_offset),
            (ProducerId(7), Offset(5), Offset(12))
        );
        assert_eq!(encode(&read), [entry(3, 9), entry(5, 12)].concat());
        assert_eq!(decode(&entry(3, 9)[1..]), Err(TxnIndexDamage::Size));
        assert_eq!(decode(&[entry(5, 12), entry(3, 9)].concat()), Err(TxnIndexDamage::Order));
        assert_eq!(decode(&entry(10, 9)), Err(TxnIndexDamage::Order));
        assert_eq!(decode(&[&[0, 1], &entry(3, 9)[2..]].concat()), Err(TxnIndexDamage::Version(1)));
    }
}
