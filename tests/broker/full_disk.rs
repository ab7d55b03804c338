//! A disk that fills up: refused, never lost, and healed by itself (field case LOG-08).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::harness::batches::{Writer, whole};
use super::harness::client::Produced;
use super::harness::{Client, Folder, Start};

const TOPIC: &str = "full";
const BALLAST_BYTES: usize = 24 << 20;
const STORAGE_ERROR: i16 = 56;
/// The broker looks at the disk each second.
const HEALED_WITHIN: Duration = Duration::from_secs(20);

/// A small file system, for as long as this lives.
struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// None where this user may not mount.
    fn mount(folder: &Folder) -> Option<Self> {
        let path = folder.path().join("disk");
        fs::create_dir_all(&path).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"]).arg(&path).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self { path })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("--lazy").arg(&self.path).status();
        assert!(done.is_ok_and(|status| status.success()) || thread::panicking(), "cannot unmount");
    }
}

/// Sends the same batch until it is taken.
fn until_taken(client: &mut Client, partition: i32, batch: &[u8]) -> i64 {
    let deadline = Instant::now() + HEALED_WITHIN;
    loop {
        match client.produce(TOPIC, partition, batch) {
            Produced { error: 0, base_offset } => return base_offset,
            produced => assert_eq!(produced, Produced { error: STORAGE_ERROR, base_offset: -1 }),
        }
        assert!(Instant::now() < deadline, "still refused");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_full_disk_refuses_and_heals_without_a_restart() {
    let folder = Folder::new("full-disk");
    let Some(disk) = SmallDisk::mount(&folder) else {
        println!("skipped: this user may not mount a small file system");
        return;
    };
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![1; BALLAST_BYTES]).unwrap();
    let start = Start::on(&folder).data(&disk.path().join("data"));
    let broker = start.start();
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, 2, &[]);
    let mut writers: Vec<_> = (0..2).map(|_| Writer::new(client.init_producer_id())).collect();
    let mut sent = [Vec::new(), Vec::new()];
    let refused = loop {
        let partition = (sent[0].len() + sent[1].len()) % 2;
        let batch = writers[partition].batch(2, "full", 150_000);
        match client.produce(TOPIC, partition as i32, &batch) {
            Produced { error: 0, .. } => sent[partition].push(batch),
            produced => {
                assert_eq!(produced, Produced { error: STORAGE_ERROR, base_offset: -1 });
                break (partition, batch);
            }
        }
    };
    println!("full after {} and {} batches", sent[0].len(), sent[1].len());
    // What is there can be read, and what was acknowledged is recognised.
    for partition in 0..2 {
        check(&mut client, partition, &sent[partition as usize]);
        let newest = sent[partition as usize].last().unwrap();
        assert_eq!(client.produce(TOPIC, partition, newest).error, 0);
    }
    fs::remove_file(&ballast).unwrap();
    let (partition, batch) = refused;
    until_taken(&mut client, partition as i32, &batch);
    sent[partition].push(batch);
    for _ in 0..4 {
        let batch = writers[partition].batch(2, "full", 1_000);
        until_taken(&mut client, partition as i32, &batch);
        sent[partition].push(batch);
    }
    broker.kill9();
    let broker = start.start();
    let mut client = Client::connect(broker.address);
    for partition in 0..2 {
        check(&mut client, partition, &sent[partition as usize]);
    }
    broker.stop_cleanly();
}

/// The partition holds these batches, each once, and nothing else.
fn check(client: &mut Client, partition: i32, sent: &[Vec<u8>]) {
    let bytes = client.read_all(TOPIC, partition);
    let found = whole(&bytes);
    assert_eq!(found.len(), sent.len(), "partition {partition}");
    for (found, sent) in found.iter().zip(sent) {
        assert!(found.content() == &sent[16..], "partition {partition}");
    }
}
