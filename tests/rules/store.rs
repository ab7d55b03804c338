//! The store file keeps either the old or the new state, whatever happens to it.

use std::path::Path;

use corelane::log::store::{Store, StoreState};

use crate::memory_disk::{MemoryDisk, MemoryFile, WriteFault};
use crate::mini_host;

const FOLDER: &str = "/data/corelane";
const FILE: &str = "/data/corelane/store";

async fn open(disk: &MemoryDisk) -> std::io::Result<Store<MemoryFile>> {
    Store::open_or_create(disk, Path::new(FOLDER), 12).await
}

/// A store that has been written `times` times; returns its last two states.
async fn written(disk: &MemoryDisk, times: u64) -> [StoreState; 2] {
    let mut store = open(disk).await.unwrap();
    let mut before = store.state();
    for generation in 1..=times {
        before = store.state();
        let next = StoreState { clean: generation % 2 == 0, generation, live_generation: generation - 1, ..before };
        store.write(next).await.unwrap();
    }
    [before, store.state()]
}

#[test]
fn what_was_written_is_found_again() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        for times in 1..5 {
            let [before, last] = written(&disk, times).await;
            assert_eq!(last.counter, before.counter + 1);
            assert_eq!((last.generation, last.clean), (times, times % 2 == 0));
            assert_eq!(open(&disk).await.unwrap().state(), last);
        }
        let other = MemoryDisk::default();
        assert_ne!(open(&other).await.unwrap().state().store_id, open(&disk).await.unwrap().state().store_id);
    });
}

#[test]
fn a_torn_write_leaves_the_old_state() {
    mini_host::run(1, async {
        for torn in 0..64 {
            let disk = MemoryDisk::default();
            let [_, last] = written(&disk, 3).await;
            let mut store = open(&disk).await.unwrap();
            disk.fail_write(0, WriteFault::Dead(torn));
            assert!(store.write(StoreState { generation: 9, ..last }).await.is_err());
            assert_eq!(open(&disk).await.unwrap().state(), last, "torn at byte {torn}");
        }
    });
}

#[test]
fn a_flipped_bit_costs_the_slot_that_it_is_in() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let [before, last] = written(&disk, 2).await;
        let counter = |slot: usize| disk.content(Path::new(FILE))[slot + 16];
        let (newest, older) = if counter(0) > counter(4096) { (0, 4096) } else { (4096, 0) };
        for at in 0..64 {
            for (slot, expected) in [(newest, before), (older, last)] {
                let copy = disk.copy();
                copy.change(Path::new(FILE), |bytes| bytes[slot + at] ^= 4);
                assert_eq!(open(&copy).await.unwrap().state(), expected, "bit of byte {at}");
            }
        }
    });
}

#[test]
fn what_cannot_be_trusted_is_refused_by_name() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        written(&disk, 2).await;
        let refused = async |change: &dyn Fn(&mut Vec<u8>)| {
            let copy = disk.copy();
            copy.change(Path::new(FILE), |bytes| change(bytes));
            open(&copy).await.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let both_bad = refused(&|bytes| {
            bytes[0] = 0;
            bytes[4096] = 0;
        });
        assert!(both_bad.await.starts_with("/data/corelane/store: both copies"));
        let empty = refused(&Vec::clear);
        assert!(empty.await.contains("both copies"));
        let later = refused(&|bytes| {
            bytes[8] = 2;
            let crc = corelane::log::crc::crc32c(&bytes[..60]);
            bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        });
        assert!(later.await.contains("version 2"));
    });
}

#[test]
fn a_store_is_not_invented_beside_data() {
    mini_host::run(1, async {
        for orphan in ["catalog-0", "shard-0/log-0"] {
            let disk = MemoryDisk::default();
            disk.put(&Path::new(FOLDER).join(orphan), vec![0; 10]);
            let error = open(&disk).await.err().unwrap().to_string();
            assert!(error.contains("store is missing although"), "{error}");
        }
    });
}
