//! A seal is read back as it was written, and never when one bit of it changed.

use corelane::ids::{LogId, Offset};
use corelane::log::index::TimestampOffset;
use corelane::log::seal::{FileCrcs, SEAL_BYTES, Seal, SealDamage};
use proptest::prelude::*;

fn any_seal() -> impl Strategy<Value = Seal> {
    let ids = (any::<[bool; 2]>(), any::<u64>(), any::<u64>(), 0..i64::MAX, 0..i64::MAX, any::<u64>());
    let times = (prop::option::of((0..i64::MAX, 0..i64::MAX)), prop::option::of(0..i64::MAX));
    (ids, times, any::<u32>(), any::<[u32; 4]>()).prop_map(|(ids, (newest, first_timestamp), abort_entries, crcs)| {
        let ([open, clean], log_id, generation, base, end, log_bytes) = ids;
        let newest = newest.map(|(timestamp, offset)| TimestampOffset { timestamp, offset: Offset(offset) });
        let crcs = FileCrcs { log: crcs[0], txnindex: crcs[1], index: crcs[2], timeindex: crcs[3] };
        Seal {
            open,
            clean,
            log_id: LogId(log_id),
            generation,
            base: Offset(base),
            end: Offset(end),
            log_bytes,
            newest,
            first_timestamp,
            abort_entries,
            crcs,
        }
    })
}

proptest! {
    #[test]
    fn a_seal_is_read_back(seal in any_seal()) {
        let file = seal.encode();
        prop_assert_eq!(file.len(), SEAL_BYTES);
        prop_assert_eq!(Seal::decode(&file), Ok(seal));
    }

    #[test]
    fn a_changed_seal_is_refused(seal in any_seal(), bit in 0..SEAL_BYTES * 8, cut in 0..SEAL_BYTES) {
        let mut file = seal.encode().to_vec();
        prop_assert_eq!(Seal::decode(&file[..cut]), Err(SealDamage::NoSeal));
        file[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Seal::decode(&file).is_err());
    }
}
