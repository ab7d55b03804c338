//! A disk that fills up: refused, never lost, and healed by itself, also for who starts on it (field cases LOG-08, LOG-09).
//!
//! On small file systems of their own: one in memory, and ext4 in a file. Who may not mount is told `ignored: may not mount`;
//! `.ci/run` does not take that for an answer.

use std::fs::{self, File};
use std::io::Write;
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

/// What file system it is.
#[derive(Clone, Copy, Debug)]
enum System {
    Memory,
    Ext4,
}

/// A small file system, for as long as this lives.
struct SmallDisk {
    path: PathBuf,
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

impl SmallDisk {
    /// None where this user may not mount.
    fn mount(folder: &Folder, system: System) -> Option<Self> {
        let path = folder.path().join("disk");
        fs::create_dir_all(&path).unwrap();
        let is_mounted = match system {
            System::Memory => {
                succeeds(Command::new("mount").args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"]).arg(&path))
            }
            System::Ext4 => {
                let image = folder.path().join("image");
                File::create(&image).unwrap().set_len(112 << 20).unwrap();
                succeeds(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image))
                    && succeeds(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&path))
            }
        };
        if !is_mounted {
            println!("ignored: may not mount ({system:?})");
        }
        is_mounted.then_some(Self { path })
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
fn log_08_a_full_disk_refuses_and_heals_without_a_restart() {
    for system in [System::Memory, System::Ext4] {
        let folder = Folder::new("full-disk");
        if let Some(disk) = SmallDisk::mount(&folder, system) {
            refuses_and_heals(&folder, &disk);
        }
    }
}

fn refuses_and_heals(folder: &Folder, disk: &SmallDisk) {
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![1; BALLAST_BYTES]).unwrap();
    let start = Start::on(folder).data(&disk.path().join("data"));
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

/// Takes the last byte that the file system has.
fn fill_up(ballast: &Path) {
    let mut file = File::create(ballast).unwrap();
    for bytes in [1 << 20, 4096, 1] {
        let chunk = vec![1; bytes];
        while file.write_all(&chunk).is_ok() {}
    }
    // What the kernel has taken must have its place.
    let _full = file.sync_all();
}

#[test]
fn log_09_a_start_on_a_full_disk_serves_or_says_why_not_and_loses_nothing() {
    for system in [System::Memory, System::Ext4] {
        for is_killed in [true, false] {
            let folder = Folder::new("full-start");
            if let Some(disk) = SmallDisk::mount(&folder, system) {
                starts_on_a_full_disk(&folder, &disk, is_killed);
            }
        }
    }
}

fn starts_on_a_full_disk(folder: &Folder, disk: &SmallDisk, is_killed: bool) {
    let start = Start::on(folder).data(&disk.path().join("data"));
    let broker = start.start();
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, 2, &[("segment.bytes", "1048576")]);
    let mut writers: Vec<_> = (0..2).map(|_| Writer::new(client.init_producer_id())).collect();
    let mut sent = [Vec::new(), Vec::new()];
    for at in 0..30 {
        let batch = writers[at % 2].batch(2, "full", 100_000);
        assert_eq!(client.produce(TOPIC, (at % 2) as i32, &batch).error, 0);
        sent[at % 2].push(batch);
    }
    if is_killed {
        broker.kill9()
    } else {
        broker.stop_cleanly()
    }
    let ballast = disk.path().join("ballast");
    fill_up(&ballast);
    // Again and again, as whoever looks after it would do.
    for _ in 0..3 {
        match start.try_start() {
            Ok(broker) => {
                println!("serves on a full disk (killed: {is_killed})");
                let mut client = Client::connect(broker.address);
                for partition in 0..2 {
                    check(&mut client, partition, &sent[partition as usize]);
                    let refused = writers[partition as usize].batch(1, "refused", 10);
                    assert_eq!(client.produce(TOPIC, partition, &refused).error, STORAGE_ERROR);
                    writers[partition as usize].next_sequence -= 1;
                }
                broker.kill9();
            }
            Err((status, said)) => {
                println!("does not start on a full disk (killed: {is_killed}): {said}");
                assert_eq!(status.code(), Some(1), "{said}");
                let sentence = said.lines().rev().find(|line| line.starts_with("corelane: ")).expect("a sentence");
                assert!(sentence.contains("No space left") || sentence.contains("bytes were written"), "{sentence}");
            }
        }
    }
    fs::remove_file(&ballast).unwrap();
    let broker = start.start();
    let mut client = Client::connect(broker.address);
    for partition in 0..2 {
        check(&mut client, partition as i32, &sent[partition]);
        let batch = writers[partition].batch(1, "after", 10);
        until_taken(&mut client, partition as i32, &batch);
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
