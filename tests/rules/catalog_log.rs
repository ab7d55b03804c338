//! The catalog keeps what it has answered, and is refused when it is damaged.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;

use corelane::log::catalog_log::{CatalogLog, CatalogRecord};
use corelane::runtime::host::{Queue, spawn};

use crate::memory_disk::{MemoryDisk, WriteFault};
use crate::mini_host;

const FOLDER: &str = "/data/corelane";
const FILES: [&str; 2] = ["/data/corelane/catalog-0", "/data/corelane/catalog-1"];
const STORE: [u8; 16] = [5; 16];

async fn open(disk: &MemoryDisk) -> io::Result<(CatalogLog<MemoryDisk>, Vec<CatalogRecord>)> {
    CatalogLog::open_or_create(disk.clone(), Path::new(FOLDER), STORE).await
}

async fn content(disk: &MemoryDisk) -> Vec<CatalogRecord> {
    open(disk).await.unwrap().1
}

fn record(number: u32, bytes: usize) -> CatalogRecord {
    let mut data = number.to_le_bytes().repeat(bytes / 4 + 1);
    data.truncate(bytes);
    (16 + (number % 7) as u8, data.into())
}

fn records(numbers: std::ops::Range<u32>) -> Vec<CatalogRecord> {
    numbers.map(|number| record(number, 100 + number as usize)).collect()
}

#[test]
fn what_was_answered_is_found_again_in_order() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        assert_eq!(content(&disk).await, []);
        let (catalog, _) = open(&disk).await.unwrap();
        catalog.append(&records(0..3)).await.unwrap();
        catalog.append(&records(3..4)).await.unwrap();
        assert_eq!(content(&disk).await, records(0..4));
        let (catalog, _) = open(&disk).await.unwrap();
        catalog.rewrite(&records(2..4)).await.unwrap();
        catalog.append(&records(4..6)).await.unwrap();
        assert_eq!(content(&disk).await, records(2..6));
        let (catalog, _) = open(&disk).await.unwrap();
        catalog.rewrite(&records(5..6)).await.unwrap();
        assert_eq!(content(&disk).await, records(5..6));
    });
}

#[test]
fn appends_at_the_same_time_take_turns() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let catalog = Rc::new(open(&disk).await.unwrap().0);
        let answered = Rc::new(RefCell::new(Vec::new()));
        for number in 0..20 {
            let (catalog, answered) = (catalog.clone(), answered.clone());
            spawn(Queue::Requests, async move {
                catalog.append(&records(number..number + 1)).await.unwrap();
                answered.borrow_mut().push(number);
            });
        }
        while answered.borrow().len() < 20 {
            corelane::runtime::clock::sleep(std::time::Duration::from_micros(10)).await;
        }
        assert_eq!(content(&disk).await, records(0..20));
        assert_eq!(*answered.borrow(), (0..20).collect::<Vec<_>>());
    });
}

#[test]
fn a_full_file_asks_for_a_snapshot_and_a_large_one_gets_a_larger_file() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (catalog, _) = open(&disk).await.unwrap();
        let mut appended = Vec::new();
        while !catalog.needs_snapshot() {
            appended.push(record(appended.len() as u32, 50_000));
            catalog.append(&appended[appended.len() - 1..]).await.unwrap();
        }
        let error = catalog.append(&[record(0, 600_000)]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        appended.push(record(99, 600_000));
        catalog.rewrite(&appended).await.unwrap();
        assert!(!catalog.needs_snapshot());
        catalog.append(&[record(100, 700_000)]).await.unwrap();
        appended.push(record(100, 700_000));
        assert_eq!(content(&disk).await, appended);
    });
}

/// Making, appending, rewriting, each torn at each of its writes: all or nothing of what was not answered.
#[test]
fn the_power_may_go_at_any_write() {
    mini_host::run(1, async {
        let steps = 12;
        for after in 0.. {
            let mut died = false;
            for torn in [0, 4096, 8192, 12288] {
                let disk = MemoryDisk::default();
                disk.fail_write(after, WriteFault::Dead(torn));
                let (answered, tried) = work(&disk, steps).await;
                died |= disk.writes() > after;
                let found = content(&disk.copy()).await;
                assert!(found == answered || found == tried, "after {after} writes, torn at {torn}");
                assert_eq!(content(&disk.copy()).await, found);
            }
            if !died {
                assert!(after > 20, "the work has more writes than that");
                break;
            }
        }
    });
}

/// Appends and rewrites until something fails: what was answered, and what would be there if the failed step counted.
async fn work(disk: &MemoryDisk, steps: u32) -> (Vec<CatalogRecord>, Vec<CatalogRecord>) {
    let Ok((catalog, mut held)) = open(disk).await else { return (Vec::new(), Vec::new()) };
    for step in 0..steps {
        let mut next = held.clone();
        let result = if step % 4 == 3 {
            next.drain(..2);
            catalog.rewrite(&next).await
        } else {
            next.extend(records(2 * step..2 * step + 2));
            catalog.append(&next[held.len()..]).await
        };
        if result.is_err() {
            assert!(catalog.append(&records(0..1)).await.is_err(), "nothing more is taken");
            return (held, next);
        }
        held = next;
    }
    (held.clone(), held)
}

#[test]
fn a_damaged_catalog_is_refused() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (catalog, _) = open(&disk).await.unwrap();
        catalog.append(&records(0..3)).await.unwrap();
        catalog.append(&records(3..6)).await.unwrap();
        let refused = async |change: &dyn Fn(&MemoryDisk)| {
            let copy = disk.copy();
            change(&copy);
            open(&copy).await.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let used = Path::new(FILES[0]);
        let flipped = |at: usize| move |copy: &MemoryDisk| copy.change(used, |bytes| bytes[at] ^= 1);
        assert!(refused(&flipped(8192 + 4096 + 70)).await.contains("catalog-0: the catalog is damaged"), "a group");
        assert!(refused(&flipped(8192 + 16)).await.contains("damaged"), "the snapshot");
        assert!(refused(&|copy| copy.change(used, |bytes| bytes[..8192].fill(0))).await.contains("damaged"), "headers");
        assert!(refused(&|copy| copy.remove(used)).await.contains("damaged"), "file lost");
        assert!(refused(&|copy| copy.change(used, |bytes| bytes.truncate(1 << 20))).await.contains("shorter"));
        let other = CatalogLog::open_or_create(disk.copy(), Path::new(FOLDER), [6; 16]).await;
        assert!(other.err().unwrap().to_string().contains("another data folder"));
    });
}

/// What the other file held once is older: it never comes back in place of a file that was lost.
#[test]
fn an_older_catalog_does_not_come_back() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (catalog, _) = open(&disk).await.unwrap();
        catalog.append(&records(0..3)).await.unwrap();
        catalog.rewrite(&records(0..3)).await.unwrap();
        catalog.append(&records(3..4)).await.unwrap();
        disk.change(Path::new(FILES[1]), |bytes| bytes[..8192].fill(0));
        assert!(open(&disk).await.err().unwrap().to_string().contains("damaged"));
    });
}

#[test]
fn a_full_disk_does_not_stop_a_rewrite_in_place() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (catalog, _) = open(&disk).await.unwrap();
        catalog.append(&records(0..3)).await.unwrap();
        disk.limit(Some(disk.total_bytes()));
        let large = |count| (0..count).map(|number| record(number, 50_000)).collect::<Vec<_>>();
        assert!(catalog.rewrite(&large(45)).await.is_err(), "needs a larger file");
        catalog.append(&records(3..4)).await.unwrap();
        catalog.rewrite(&records(1..4)).await.unwrap();
        assert_eq!(content(&disk).await, records(1..4));
        // Less room behind it than it would get elsewhere, but it fits: a deletion is possible for as long as that is so.
        for count in [39, 38, 37] {
            catalog.rewrite(&large(count)).await.unwrap();
            assert_eq!(content(&disk).await, large(count));
        }
    });
}

/// After a write that took only a part nobody knows what is there: nothing more is taken, and a start finds out.
#[test]
fn after_a_failed_write_the_catalog_refuses() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (catalog, _) = open(&disk).await.unwrap();
        catalog.append(&records(0..1)).await.unwrap();
        disk.fail_write(0, WriteFault::Short(512));
        assert!(catalog.append(&records(1..2)).await.is_err());
        assert!(catalog.append(&records(2..3)).await.is_err());
        assert!(catalog.rewrite(&records(0..3)).await.is_err());
        let (catalog, found) = open(&disk).await.unwrap();
        catalog.append(&records(3..4)).await.unwrap();
        assert_eq!(content(&disk).await.len(), found.len() + 1);
    });
}
