//! Files that a crash, a full disk or a person has damaged (eos_c03, eos_c04, field cases LOG-01, LOG-02, LOG-04, LOG-06).

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::harness::batches::Writer;
use super::harness::client::Produced;
use super::harness::folder::files_ending;
use super::harness::{Broker, Client, Folder, Start};

const TOPIC: &str = "damage";
const PARTITIONS: i32 = 2;
/// Batches that are known again.
const WINDOW: usize = 5;

/// How the broker goes down before the damage.
#[derive(Clone, Copy)]
enum Down {
    Kill,
    Stop,
}

/// A filled data folder of a broker that is down, and what was in it.
struct Filled {
    folder: Folder,
    bytes: Vec<Vec<u8>>,
    writers: Vec<Writer>,
    /// The last batches of each partition with their offsets.
    known: Vec<Vec<(Vec<u8>, i64)>>,
}

impl Filled {
    fn new(name: &str, down: Down) -> Self {
        let folder = Folder::new(name);
        let broker = Start::on(&folder).start();
        let mut client = Client::connect(broker.address);
        client.create_topic(TOPIC, PARTITIONS, &[("segment.bytes", "1048576")]);
        let mut writers = Vec::new();
        let mut known = Vec::new();
        for partition in 0..PARTITIONS {
            let mut writer = Writer::new(client.init_producer_id());
            let mut sent = Vec::new();
            for _ in 0..20 {
                let batch = writer.batch(3, "damage", 50_000);
                let produced = client.produce(TOPIC, partition, &batch);
                assert_eq!(produced.error, 0);
                sent.push((batch, produced.base_offset));
            }
            writers.push(writer);
            known.push(sent.split_off(sent.len() - WINDOW));
        }
        let bytes = read(&mut client);
        match down {
            Down::Kill => broker.kill9(),
            Down::Stop => broker.stop_cleanly(),
        }
        Self { folder, bytes, writers, known }
    }

    fn active_segment(&self) -> PathBuf {
        self.folder.segments(TOPIC, 0).pop().unwrap()
    }

    /// The last batch of a partition, and its offset.
    fn last(&self, partition: usize) -> &(Vec<u8>, i64) {
        self.known[partition].last().unwrap()
    }

    /// Starts it: everything must be as it was, retries recognised, and the next batch must follow.
    fn must_be_whole(&mut self) -> Broker {
        let broker = Start::on(&self.folder).start();
        let mut client = Client::connect(broker.address);
        assert!(read(&mut client) == self.bytes, "the data changed\n{}", broker.log());
        for partition in 0..PARTITIONS {
            let at = partition as usize;
            for (batch, offset) in self.known[at].iter().rev() {
                assert_eq!(client.produce(TOPIC, partition, batch), Produced { error: 0, base_offset: *offset });
            }
            let offset = self.last(at).1;
            let next = client.produce(TOPIC, partition, &self.writers[at].batch(1, "next", 10));
            assert_eq!(next, Produced { error: 0, base_offset: offset + 3 }, "{}", broker.log());
        }
        broker
    }
}

fn read(client: &mut Client) -> Vec<Vec<u8>> {
    (0..PARTITIONS).map(|partition| client.read_all(TOPIC, partition)).collect()
}

/// Does the damage after a kill and after a clean stop; nothing may be lost.
fn costs_nothing(name: &str, damage: impl Fn(&Filled)) {
    for (down, word) in [(Down::Kill, "kill"), (Down::Stop, "stop")] {
        let mut filled = Filled::new(&format!("{name}-{word}"), down);
        damage(&filled);
        filled.must_be_whole().stop_cleanly();
    }
}

fn append(path: &Path, bytes: &[u8]) {
    File::options().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

fn cut(path: &Path, bytes: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - bytes).unwrap();
}

fn overwrite(path: &Path) {
    let bytes = fs::metadata(path).unwrap().len() as usize;
    fs::write(path, vec![0xa5; bytes.max(64)]).unwrap();
}

fn checkpoints(filled: &Filled) -> Vec<PathBuf> {
    let own = filled.folder.data().join("corelane");
    let mut all = Vec::new();
    for shard in 0..2 {
        let shard = own.join(format!("shard-{shard}"));
        all.extend(files_ending(&shard, ".full").into_iter().chain(files_ending(&shard, ".delta")));
    }
    assert!(!all.is_empty());
    all
}

/// The newest of each shard: numbers grow, and a longer number is a larger one.
fn newest_checkpoints(filled: &Filled) -> Vec<PathBuf> {
    let mut all = checkpoints(filled);
    all.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    let of = |shard: &str| all.iter().rev().find(|path| path.to_string_lossy().contains(shard)).cloned();
    ["shard-0", "shard-1"].into_iter().filter_map(of).collect()
}

#[test]
fn a_tail_that_is_torn_after_a_kill_comes_back_from_the_commit_log() {
    for bytes in [1, 61, 50_000, 160_000] {
        let mut filled = Filled::new("torn", Down::Kill);
        cut(&filled.active_segment(), bytes);
        filled.must_be_whole().stop_cleanly();
    }
}

/// After a clean stop nobody reads the commit log, unless something is missing.
#[test]
fn what_is_gone_after_a_clean_stop_comes_back_from_the_commit_log() {
    for bytes in [1, 50_000, 160_000] {
        let mut filled = Filled::new("torn-stop", Down::Stop);
        cut(&filled.active_segment(), bytes);
        filled.must_be_whole().stop_cleanly();
    }
    for which in 0..3 {
        let mut filled = Filled::new("gone-stop", Down::Stop);
        let segments = filled.folder.segments(TOPIC, 0);
        fs::remove_file(&segments[which * (segments.len() - 1) / 2]).unwrap();
        filled.must_be_whole().stop_cleanly();
    }
}

#[test]
fn a_segment_that_is_empty_or_gone_after_a_kill_comes_back_from_the_commit_log() {
    let mut filled = Filled::new("emptied", Down::Kill);
    File::create(filled.active_segment()).unwrap();
    filled.must_be_whole().stop_cleanly();
    let mut filled = Filled::new("gone", Down::Kill);
    fs::remove_file(filled.active_segment()).unwrap();
    filled.must_be_whole().stop_cleanly();
}

#[test]
fn a_batch_that_changed_after_a_kill_comes_back_from_the_commit_log() {
    let mut filled = Filled::new("changed", Down::Kill);
    let path = filled.active_segment();
    let mut file = File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(5_000)).unwrap();
    file.write_all(b"this was never sent").unwrap();
    filled.must_be_whole().stop_cleanly();
}

#[test]
fn garbage_and_zeros_behind_the_last_batch_are_cut_off() {
    costs_nothing("garbage", |filled| {
        append(&filled.active_segment(), b"garbage that is no batch at all, but long enough to be a header of one")
    });
    costs_nothing("zeros", |filled| append(&filled.active_segment(), &[0; 1 << 20]));
    costs_nothing("half-batch", |filled| {
        let (batch, _) = filled.last(0);
        append(&filled.active_segment(), &batch[..batch.len() / 2]);
    });
}

/// The next batch of a partition as it would lie in its segment.
fn stored(filled: &mut Filled, partition: usize) -> (Vec<u8>, Vec<u8>, i64) {
    let end = filled.last(partition).1 + 3;
    let sent = filled.writers[partition].batch(3, "torn", 5_000);
    let mut stored = sent.clone();
    stored[..8].copy_from_slice(&end.to_be_bytes());
    (sent, stored, end)
}

/// A batch that only the segment holds, and not all of it: the log is cut in front of it, and it is written once.
#[test]
fn eos_c03_a_torn_batch_that_no_commit_log_holds_is_cut_off_and_written_once() {
    for kept in [1, 11, 17, 60, 61, 1_000, 15_000] {
        let mut filled = Filled::new("c03", Down::Kill);
        let (sent, stored, end) = stored(&mut filled, 0);
        assert!(kept < stored.len());
        append(&filled.active_segment(), &stored[..kept]);
        let broker = Start::on(&filled.folder).start();
        let mut client = Client::connect(broker.address);
        assert_eq!(client.end(TOPIC, 0), end, "cut at {kept}");
        assert!(read(&mut client) == filled.bytes);
        for _ in 0..3 {
            assert_eq!(client.produce(TOPIC, 0, &sent), Produced { error: 0, base_offset: end });
        }
        assert_eq!(client.end(TOPIC, 0), end + 3);
        assert_eq!(client.read_all(TOPIC, 0).len(), filled.bytes[0].len() + sent.len());
        broker.stop_cleanly();
    }
}

/// The same batch whole: it was acknowledged with acks=1, perhaps, and stays.
#[test]
fn eos_c03_a_whole_batch_that_no_commit_log_holds_stays_and_is_known() {
    let mut filled = Filled::new("c03-whole", Down::Kill);
    let (sent, stored, end) = stored(&mut filled, 0);
    append(&filled.active_segment(), &stored);
    let broker = Start::on(&filled.folder).start();
    let mut client = Client::connect(broker.address);
    assert_eq!(client.produce(TOPIC, 0, &sent), Produced { error: 0, base_offset: end });
    assert_eq!(client.end(TOPIC, 0), end + 3);
    broker.stop_cleanly();
}

#[test]
fn log_06_a_newest_segment_without_a_byte_is_gone_on_with() {
    costs_nothing("zero-length", |filled| {
        let end = filled.last(0).1 + 3;
        File::create(filled.folder.partition(TOPIC, 0).join(format!("{end:020}.log"))).unwrap();
    });
}

#[test]
fn log_04_derived_files_that_are_missing_are_made_again() {
    for ending in [".index", ".timeindex", ".seal", ".snapshot"] {
        costs_nothing(&format!("no{ending}"), |filled| {
            for partition in 0..PARTITIONS {
                for path in files_ending(&filled.folder.partition(TOPIC, partition), ending) {
                    fs::remove_file(path).unwrap();
                }
            }
        });
    }
}

/// Snapshots among them.
#[test]
fn eos_c04_derived_files_that_hold_garbage_are_made_again() {
    for ending in [".index", ".timeindex", ".seal", ".snapshot"] {
        costs_nothing(&format!("bad{ending}"), |filled| {
            for partition in 0..PARTITIONS {
                files_ending(&filled.folder.partition(TOPIC, partition), ending)
                    .iter()
                    .for_each(|path| overwrite(path));
            }
        });
    }
}

#[test]
fn eos_c04_checkpoints_that_are_lost_cost_nothing() {
    costs_nothing("no-newest", |filled| {
        newest_checkpoints(filled).iter().for_each(|path| fs::remove_file(path).unwrap())
    });
    costs_nothing("bad-newest", |filled| newest_checkpoints(filled).iter().for_each(|path| overwrite(path)));
    costs_nothing("no-checkpoint", |filled| checkpoints(filled).iter().for_each(|path| fs::remove_file(path).unwrap()));
    costs_nothing("bad-checkpoints", |filled| checkpoints(filled).iter().for_each(|path| overwrite(path)));
}

fn remove_commit_logs(filled: &Filled) {
    for shard in 0..2 {
        let shard = filled.folder.data().join(format!("corelane/shard-{shard}"));
        let entries = fs::read_dir(shard).unwrap().map(|entry| entry.unwrap().path());
        let is_log = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("log-");
        entries.filter(is_log).for_each(|path| fs::remove_file(path).unwrap());
    }
}

/// What a command on a stopped broker's folder prints; its exit status must be as given.
fn repair(words: &[&str], folder: &Folder, status: i32) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    let output = command.arg("repair").args(words).arg("--data").arg(folder.data()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert_eq!(output.status.code(), Some(status), "{said}");
    said
}

/// Nothing holds the cut bytes any more: the loss is named, what is left is read, the other partition goes on, and this one
/// takes nothing new, however often the broker is started, until somebody has accepted it.
#[test]
fn log_01_a_tail_that_nothing_holds_is_named_and_refuses_writes_until_that_is_accepted() {
    let mut filled = Filled::new("torn-clean", Down::Stop);
    cut(&filled.active_segment(), 10);
    remove_commit_logs(&filled);
    let lost = filled.last(0).1;
    let kept = filled.bytes[0].len() - filled.last(0).0.len();
    for round in 0..3 {
        let broker = Start::on(&filled.folder).start();
        let mut client = Client::connect(broker.address);
        let named = format!("offsets {lost}-{} were acknowledged and are lost", lost + 2);
        assert!(broker.log().contains(&named), "{}", broker.log());
        let (error, _) = client.fetch(TOPIC, 0, lost - 3);
        assert_eq!(error, 0);
        assert!(client.read_until(TOPIC, 0, lost) == filled.bytes[0][..kept]);
        assert!(client.read_all(TOPIC, 1) == filled.bytes[1]);
        assert_eq!(client.produce(TOPIC, 1, &filled.last(1).0).error, 0);
        let next = filled.writers[0].batch(1, "refused", 10);
        assert_eq!(client.produce(TOPIC, 0, &next), Produced { error: 56, base_offset: -1 });
        filled.writers[0].next_sequence -= 1;
        let in_use = repair(&["accept-loss", "damage-0", "--yes"], &filled.folder, 1);
        assert!(in_use.contains("is in use by process"), "{in_use}");
        if round == 1 { broker.kill9() } else { broker.stop_cleanly() }
    }
    let said = repair(&["accept-loss", "damage-0"], &filled.folder, 0);
    assert!(said.contains(&format!("offsets {lost}-{}", lost + 2)) && said.contains("nothing was changed"), "{said}");
    assert!(
        repair(&["accept-loss", "damage-7", "--yes"], &filled.folder, 1).contains("there is no partition damage-7")
    );
    assert!(repair(&["accept-loss", "damage-1", "--yes"], &filled.folder, 0).contains("nothing is lost"));
    assert!(repair(&["accept-loss", "damage-0", "--yes"], &filled.folder, 0).contains("accepted, noted in"));
    assert!(repair(&["accept-loss", "damage-0", "--yes"], &filled.folder, 0).contains("nothing is lost"));
    let broker = Start::on(&filled.folder).start();
    let mut client = Client::connect(broker.address);
    let next = filled.writers[0].batch(1, "taken", 10);
    assert_eq!(client.produce(TOPIC, 0, &next), Produced { error: 0, base_offset: lost + 3 });
    broker.stop_cleanly();
}
