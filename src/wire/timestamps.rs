//! Which record of a stored batch has a timestamp that is asked for.

use bytes::Bytes;

use super::batch::BatchHeader;
use super::records::{Fault, Offsets, RecordRules, Step, Walked, Walker};
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
    // Every timestamp from the wanted one on breaks this rule, so the first fault is the record that is looked for.
    let judged_from = i32::try_from(from.0.saturating_sub(header.base_offset.0).max(0)).ok()?;
    let walked = walk(batch, &header, Some((i64::MIN, timestamp.saturating_sub(1))), judged_from)?;
    walked.faults.first().and_then(|(delta, fault)| match fault {
        Fault::Timestamp(found) => Some((header.base_offset.plus(i64::from(*delta)), *found)),
        Fault::NoKey => None,
    })
}

/// The first record that has the largest timestamp of the batch: its offset and timestamp.
#[must_use]
pub fn newest(batch: &[u8]) -> Option<(Offset, i64)> {
    let header = BatchHeader::read(batch).ok()?;
    if header.attributes.is_log_append_time() {
        return Some((header.base_offset, header.max_timestamp));
    }
    let walked = walk(batch, &header, None, 0)?;
    (walked.max_timestamp >= 0)
        .then(|| (header.base_offset.plus(i64::from(walked.max_timestamp_index)), walked.max_timestamp))
}

fn walk(batch: &[u8], header: &BatchHeader, timestamps: Option<(i64, i64)>, judged_from: i32) -> Option<Walked> {
    let offsets = Offsets::Ascending { judged_from };
    let rules = RecordRules { key_required: false, timestamps, unpacked_bytes_max: u64::MAX, offsets };
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
    use crate::wire::batch::{Codec, HEADER_BYTES, LENGTH_END};
    use crate::wire::builder::BatchBuilder;

    fn builder() -> BatchBuilder {
        let builder = BatchBuilder::new().place(Offset(100), 0);
        [10, 30, 20, 30].into_iter().fold(builder, |builder, timestamp| builder.value(timestamp, b"value"))
    }

    #[test]
    fn the_first_record_that_is_late_enough_is_found_in_every_codec() {
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let batch = builder().codec(codec).build();
            let first = |timestamp, from| first_at_or_after(&batch, timestamp, Offset(from));
            assert_eq!(first(0, 0), Some((Offset(100), 10)));
            assert_eq!(first(11, 0), Some((Offset(101), 30)));
            assert_eq!(first(11, 102), Some((Offset(102), 20)));
            assert_eq!(first(31, 0), None);
            assert_eq!(newest(&batch), Some((Offset(101), 30)));
        }
    }

    /// A batch of which compaction has left the records 1 and 3: eight bytes each with their length.
    #[test]
    fn offsets_with_gaps_are_kept() {
        let record =
            |timestamp_delta: u8, offset_delta: u8| [14, 0, timestamp_delta << 1, offset_delta << 1, 1, 2, b'v', 0];
        let mut batch = builder().header(|header| header.records_count = 2).build();
        batch.truncate(HEADER_BYTES);
        batch.extend_from_slice(&[record(20, 1), record(30, 3)].concat());
        let length = i32::try_from(batch.len() - LENGTH_END).unwrap();
        batch[8..LENGTH_END].copy_from_slice(&length.to_be_bytes());
        assert_eq!(first_at_or_after(&batch, 11, Offset(0)), Some((Offset(101), 30)));
        assert_eq!(first_at_or_after(&batch, 11, Offset(102)), Some((Offset(103), 40)));
        assert_eq!(newest(&batch), Some((Offset(103), 40)));
    }
}
