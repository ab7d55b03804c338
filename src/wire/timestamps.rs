//! Which record of a stored batch has a timestamp that is asked for.

use bytes::Bytes;

use super::batch::BatchHeader;
use super::records::{Fault, RecordRules, Step, Walked, Walker};
use super::unpack::Unpacker;
use crate::ids::Offset;

/// The first record at or behind `from` whose timestamp is at least `timestamp`: its offset and timestamp.
///
/// Shapes: `batch` is one whole stored batch. `None` when no record fits, or the batch cannot be walked.
#[must_use]
pub fn first_at_or_after(batch: &[u8], timestamp: i64, from: Offset) -> Option<(Offset, i64)> {
    let header = BatchHeader::read(batch).ok()?;
    if header.attributes.is_log_append_time() {
        let offset = header.base_offset.max(from);
        return (header.max_timestamp >= timestamp).then_some((offset, header.max_timestamp));
    }
    // Every timestamp from the wanted one on breaks this rule, so the walk lists the records that are looked for.
    let walked = walk(batch, &header, Some((i64::MIN, timestamp.saturating_sub(1))))?;
    walked.faults.iter().find_map(|(index, fault)| {
        let offset = header.base_offset.plus(i64::from(*index));
        match fault {
            Fault::Timestamp(found) if offset >= from => Some((offset, *found)),
            _ => None,
        }
    })
}

/// The first record that has the largest timestamp of the batch: its offset and timestamp.
#[must_use]
pub fn newest(batch: &[u8]) -> Option<(Offset, i64)> {
    let header = BatchHeader::read(batch).ok()?;
    if header.attributes.is_log_append_time() {
        return Some((header.base_offset, header.max_timestamp));
    }
    let walked = walk(batch, &header, None)?;
    (walked.max_timestamp >= 0)
        .then(|| (header.base_offset.plus(i64::from(walked.max_timestamp_index)), walked.max_timestamp))
}

fn walk(batch: &[u8], header: &BatchHeader, timestamps: Option<(i64, i64)>) -> Option<Walked> {
    let rules = RecordRules { key_required: false, timestamps, unpacked_bytes_max: u64::MAX };
    let mut unpacker = Unpacker::default();
    let mut walker = Walker::start(&Bytes::copy_from_slice(batch), header, &rules, &mut unpacker).ok()?;
    loop {
        if let Step::Done(walked) = walker.step(usize::MAX).ok()? {
            return Some(walked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::batch::Codec;
    use crate::wire::builder::BatchBuilder;

    fn batch(codec: Codec) -> Vec<u8> {
        let mut builder = BatchBuilder::new().base_offset(Offset(100)).codec(codec);
        for timestamp in [10, 30, 20, 30] {
            builder = builder.record(timestamp, None, Some(b"value"));
        }
        builder.build().to_vec()
    }

    #[test]
    fn the_first_record_that_is_late_enough_is_found_in_every_codec() {
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let batch = batch(codec);
            let first = |timestamp, from| first_at_or_after(&batch, timestamp, Offset(from));
            assert_eq!(first(0, 0), Some((Offset(100), 10)));
            assert_eq!(first(11, 0), Some((Offset(101), 30)));
            assert_eq!(first(11, 102), Some((Offset(102), 20)));
            assert_eq!(first(31, 0), None);
            assert_eq!(newest(&batch), Some((Offset(101), 30)));
        }
    }
}
