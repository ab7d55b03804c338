//! `corelane verify`: planted damages, each of which it must find and name, and folders in which nothing is wrong.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use corelane::log::snapshot;
use corelane::offline::finding::{Finding, Weight};
use corelane::offline::folder::Watched;
use corelane::offline::verify::{Verified, check};
use corelane::wire::batch::set_crc;

use super::harness::batches::Writer;
use super::harness::folder::files_ending;
use super::harness::random::Random;
use super::harness::{Broker, Client, Folder, Start};

const TOPIC: &str = "verify";
const PARTITIONS: i32 = 2;
const ROUNDS: usize = 30;

/// A data folder that a real broker has left behind: two lives of it, so that there are two leader epochs, several segments,
/// and a recovery point with something behind it where the second life was killed.
fn filled(name: &str, is_killed: bool) -> Folder {
    let folder = Folder::new(name);
    let mut writers: Vec<Writer> = Vec::new();
    let broker = start(&folder);
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, PARTITIONS, &[("segment.bytes", "1048576")]);
    for _ in 0..PARTITIONS {
        writers.push(Writer::new(client.init_producer_id()));
    }
    produce(&mut client, &mut writers);
    broker.stop_cleanly();
    let broker = start(&folder);
    produce(&mut Client::connect(broker.address), &mut writers);
    if is_killed {
        broker.kill9()
    } else {
        broker.stop_cleanly()
    }
    folder
}

fn start(folder: &Folder) -> Broker {
    Start::on(folder).set("corelane.log.file.bytes=4194304").start()
}

fn produce(client: &mut Client, writers: &mut [Writer]) {
    for _ in 0..ROUNDS {
        for (partition, writer) in (0..).zip(&mut *writers) {
            assert_eq!(client.produce(TOPIC, partition, &writer.batch(3, "verify", 8_000)).error, 0);
        }
    }
}

fn verify(folder: &Folder) -> Verified {
    check(&Watched::take(&folder.data()).unwrap())
}

fn must_be_sound(folder: &Folder) -> Verified {
    let verified = verify(folder);
    assert_eq!(verified.damages(), 0, "{}", verified.text());
    verified
}

/// How a file is spoiled.
enum Do {
    Flip(u64),
    Cut(u64),
    Zero(u64, usize),
    Append(&'static [u8]),
    Remove,
    With(fn(&mut Vec<u8>)),
}

fn spoil(path: &Path, what: &Do) {
    let edit = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut content = fs::read(path).unwrap_or_default();
        change(&mut content);
        fs::write(path, content).unwrap();
    };
    match what {
        Do::Flip(at) => edit(&|content| content[*at as usize] ^= 0x10),
        Do::Cut(bytes) => edit(&|content| content.truncate(content.len() - *bytes as usize)),
        Do::Zero(at, bytes) => edit(&|content| content[*at as usize..][..*bytes].fill(0)),
        Do::Append(bytes) => edit(&|content| content.extend_from_slice(bytes)),
        Do::Remove => fs::remove_file(path).unwrap(),
        Do::With(change) => edit(change),
    }
}

/// One planted damage: which file, what is done to it, the file that must be named, and words of the sentence.
struct Planted {
    name: &'static str,
    file: PathBuf,
    what: Do,
    named: &'static str,
    words: &'static str,
}

/// Does it, looks, and puts the file back.
fn must_be_found(folder: &Folder, planted: &Planted) {
    let before = fs::read(&planted.file).ok();
    spoil(&planted.file, &planted.what);
    let verified = verify(folder);
    match before {
        Some(content) => fs::write(&planted.file, content).unwrap(),
        None => fs::remove_file(&planted.file).unwrap(),
    }
    let is_it = |finding: &&Finding| {
        finding.weight == Weight::Damage
            && finding.file.to_string_lossy().ends_with(planted.named)
            && finding.what.contains(planted.words)
    };
    assert!(
        verified.findings.iter().any(|finding| is_it(&finding)),
        "{}: not found in\n{}",
        planted.name,
        verified.text()
    );
}

fn planted(name: &'static str, file: &Path, what: Do, named: &'static str, words: &'static str) -> Planted {
    Planted { name, file: file.to_path_buf(), what, named, words }
}

/// Where the batches of a segment begin.
fn positions(segment: &Path) -> Vec<u64> {
    let content = fs::read(segment).unwrap();
    let mut positions = Vec::new();
    let mut at = 0;
    while at < content.len() {
        positions.push(at as u64);
        at += 12 + u32::from_be_bytes(content[at + 8..at + 12].try_into().unwrap()) as usize;
    }
    positions
}

fn newest(folder: &Path, ending: &str) -> PathBuf {
    let mut all = files_ending(folder, ending);
    all.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    all.pop().unwrap()
}

/// The catalog's file in use: the other one has no header.
fn catalog(folder: &Folder) -> PathBuf {
    let own = folder.data().join("corelane");
    ["catalog-0", "catalog-1"]
        .map(|name| own.join(name))
        .into_iter()
        .find(|path| begins_with(path, b"CLOGFIL1"))
        .unwrap()
}

fn begins_with(path: &Path, magic: &[u8]) -> bool {
    let mut begin = vec![0; magic.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin == magic
}

/// Where groups begin in a log file of the present use: block by block, the same salt as the header's.
fn groups(path: &Path) -> Vec<u64> {
    let content = fs::read(path).unwrap();
    let salt = &content[32..40];
    let is_group = |at: &usize| content[*at..].starts_with(b"CLG1") && &content[at + 8..at + 16] == salt;
    (8192..content.len() - 64).step_by(4096).filter(is_group).map(|at| at as u64).collect()
}

#[test]
fn planted_damages_of_a_folder_that_was_left_in_order_are_found() {
    let folder = filled("verify-stopped", false);
    must_be_sound(&folder);
    let partition = folder.partition(TOPIC, 0);
    let own = folder.data().join("corelane");
    let kafka = folder.data().join("kafka");
    let segments = folder.segments(TOPIC, 0);
    let (closed, active) = (&segments[0], segments.last().unwrap());
    assert!(segments.len() >= 2, "{segments:?}");
    let beside = |ending| closed.with_extension(ending);
    let (shard, full) = shard_of(&own);
    let catalog = catalog(&folder);
    let catalog_groups = groups(&catalog);
    let third = positions(closed)[2];
    let epochs = partition.join("leader-epoch-checkpoint");
    let metadata = partition.join("partition.metadata");
    let all = [
        planted("a record's byte", closed, Do::Flip(third + 200), ".log", "a wrong checksum"),
        planted("a batch's base offset", closed, Do::Flip(third + 7), ".log", "offset"),
        planted("a base offset far ahead", closed, Do::Flip(third + 4), ".log", "are in no batch"),
        planted("a batch's leader epoch", closed, Do::Flip(third + 15), ".log", "is of leader epoch"),
        planted("a batch's length", closed, Do::Flip(third + 9), ".log", "batch"),
        planted("a batch's magic", closed, Do::Flip(third + 16), ".log", "no batch header"),
        planted("zeros within a segment", closed, Do::Zero(third, 4096), ".log", "zeros"),
        planted("the end of the active segment", active, Do::Cut(10), ".log", "were flushed"),
        planted("the end of a closed segment", closed, Do::Cut(10), ".log", "cut off"),
        planted("bytes behind the last batch", active, Do::Append(b"garbage"), ".log", "cut off"),
        planted("a batch that is there twice", active, Do::With(double_first_batch), ".log", "offset goes back"),
        planted("a closed segment", closed, Do::Remove, "verify-0", "segments are missing"),
        planted("the active segment", active, Do::Remove, ".log", "were flushed to it"),
        planted("an index entry's position", &beside("index"), Do::Flip(7), ".index", "points to byte"),
        planted("an index entry's offset", &beside("index"), Do::Flip(11), ".index", ""),
        planted("a part of an index entry", &beside("index"), Do::Cut(3), ".index", "no multiple of an entry"),
        planted("the last index entry", &beside("index"), Do::Cut(8), ".index", "sealed with"),
        planted("an index", &beside("index"), Do::Remove, ".index", "missing"),
        planted("zeros in an index", &beside("index"), Do::Zero(0, 16), ".index", "do not ascend"),
        planted("a time index entry", &beside("timeindex"), Do::Flip(7), ".timeindex", ""),
        planted("the last time index entry", &beside("timeindex"), Do::Cut(12), ".timeindex", "sealed with"),
        planted("a time index", &beside("timeindex"), Do::Remove, ".timeindex", "missing"),
        planted("an abort index of nothing", &beside("txnindex"), Do::Append(b"garbage"), ".txnindex", "no multiple"),
        planted("a seal", &beside("seal"), Do::Flip(60), ".seal", "wrong checksum"),
        planted("half a seal", &beside("seal"), Do::Cut(64), ".seal", "it is no seal"),
        planted("a snapshot", &newest(&partition, ".snapshot"), Do::Flip(20), ".snapshot", "wrong checksum"),
        planted("half a snapshot", &newest(&partition, ".snapshot"), Do::Cut(23), ".snapshot", ""),
        planted(
            "what a snapshot says",
            &newest(&partition, ".snapshot"),
            Do::With(lie_in_snapshot),
            ".snapshot",
            "ended with sequence",
        ),
        planted("a leader epoch", &epochs, Do::With(other_epoch), ".log", "is of leader epoch"),
        planted("the end of the leader epochs", &epochs, Do::Cut(1), "leader-epoch-checkpoint", "cut off"),
        planted(
            "a topic's id",
            &metadata,
            Do::With(|content| other_id(content)),
            "partition.metadata",
            "names the topic id",
        ),
        planted("a partition.metadata", &metadata, Do::Remove, "partition.metadata", "missing"),
        planted(
            "a slot of the store",
            &own.join("store"),
            Do::Flip(20),
            "store",
            "copy of the store's state is damaged",
        ),
        planted("the store", &own.join("store"), Do::Remove, "store", "missing"),
        planted(
            "a group of the catalog",
            &catalog,
            Do::Flip(catalog_groups[1] + 70),
            catalog_name(&catalog),
            "is damaged",
        ),
        planted(
            "the catalog's last group",
            &catalog,
            Do::Flip(catalog_groups.last().unwrap() + 70),
            catalog_name(&catalog),
            "is not whole",
        ),
        planted("a copy of the catalog's header", &catalog, Do::Flip(4096 + 20), catalog_name(&catalog), "two copies"),
        planted("the catalog", &catalog, Do::Zero(0, 8192), "catalog-0", "neither"),
        planted("the newest checkpoint's entries", &full, Do::Flip(110), ".full", "checksum"),
        planted("half a checkpoint", &full, Do::Cut(40), ".full", "cut off"),
        planted("the newest checkpoint", &full, Do::Remove, "recovery-point-offset-checkpoint", "the checkpoint says"),
        planted(
            "Kafka's recovery points",
            &kafka.join("recovery-point-offset-checkpoint"),
            Do::With(|content| other_number(content)),
            "recovery-point-offset-checkpoint",
            "the checkpoint says",
        ),
        planted(
            "Kafka's high watermarks",
            &kafka.join("replication-offset-checkpoint"),
            Do::Cut(4),
            "replication-offset-checkpoint",
            "line",
        ),
        planted(
            "the log dir's identity",
            &kafka.join("meta.properties"),
            Do::With(other_node),
            "meta.properties",
            "names node",
        ),
    ];
    assert!(shard.is_dir());
    for planted in &all {
        must_be_found(&folder, planted);
    }
    must_be_sound(&folder);
}

#[test]
fn planted_damages_of_a_folder_whose_broker_was_killed_are_found() {
    let folder = filled("verify-killed", true);
    must_be_sound(&folder);
    let own = folder.data().join("corelane");
    let segments = folder.segments(TOPIC, 0);
    let (shard, full) = shard_of(&own);
    let log = files_ending(&shard, "")
        .into_iter()
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("log-"));
    let log = log.max_by_key(|path| groups(path).len()).unwrap();
    let in_log = groups(&log);
    let active = segments.last().unwrap();
    let last = *positions(active).last().unwrap();
    let all = [
        planted("a group of the commit log", &log, Do::Flip(in_log[1] + 80), "", "cannot be read"),
        planted("the header of a group", &log, Do::Flip(in_log[1] + 20), "", "cannot be read"),
        planted("the end of a log file", &log, Do::Cut(1 << 20), "", "shorter than it was made"),
        planted("a copy of a log file's header", &log, Do::Flip(20), "", "two copies"),
        planted("a log file", &log, Do::Remove, "", "missing"),
        planted("a checkpoint", &full, Do::Flip(110), ".full", "checksum"),
        planted("a record below the recovery point", &segments[0], Do::Flip(1_000), ".log", "a wrong checksum"),
        planted(
            "a batch that is not the acknowledged one",
            active,
            Do::With(|content| change_last_batch(content)),
            ".log",
            "commit log",
        ),
    ];
    for planted in &all {
        must_be_found(&folder, planted);
    }
    // What a crash may leave behind is no damage.
    for torn in [1, 30, 61, 2_000] {
        let content = fs::read(active).unwrap();
        File::options().write(true).open(active).unwrap().set_len(last + torn).unwrap();
        let verified = must_be_sound(&folder);
        assert!(
            verified.findings.iter().any(|finding| finding.what.contains("behind the last flush")),
            "{}",
            verified.text()
        );
        fs::write(active, content).unwrap();
    }
    let broker = start(&folder);
    broker.stop_cleanly();
    must_be_sound(&folder);
}

/// The folder of a shard that has a checkpoint with partitions in it, and its newest full one.
fn shard_of(own: &Path) -> (PathBuf, PathBuf) {
    let shards = [own.join("shard-0"), own.join("shard-1")];
    let full = |shard: &PathBuf| newest(shard, ".full");
    let shard = shards.into_iter().max_by_key(|shard| fs::metadata(full(shard)).unwrap().len()).unwrap();
    let full = full(&shard);
    (shard, full)
}

fn catalog_name(path: &Path) -> &'static str {
    if path.ends_with("catalog-0") { "catalog-0" } else { "catalog-1" }
}

fn double_first_batch(content: &mut Vec<u8>) {
    let bytes = 12 + u32::from_be_bytes(content[8..12].try_into().unwrap()) as usize;
    let first = content[..bytes].to_vec();
    content.extend_from_slice(&first);
}

fn change_last_batch(content: &mut [u8]) {
    let mut at = 0;
    loop {
        let bytes = 12 + u32::from_be_bytes(content[at + 8..at + 12].try_into().unwrap()) as usize;
        if at + bytes == content.len() {
            break;
        }
        at += bytes;
    }
    let last = content.len() - 3;
    content[last] ^= 1;
    set_crc(&mut content[at..]);
}

fn lie_in_snapshot(content: &mut Vec<u8>) {
    let mut entries = snapshot::decode(content).unwrap();
    entries[0].last_sequence -= 1;
    *content = snapshot::encode(&entries).to_vec();
}

fn other_epoch(content: &mut Vec<u8>) {
    let text = String::from_utf8(content.clone()).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let (epoch, start) = lines.last().unwrap().split_once(' ').unwrap();
    let start: i64 = start.parse().unwrap();
    *lines.last_mut().unwrap() = format!("{epoch} {}", start + 30);
    *content = (lines.join("\n") + "\n").into_bytes();
}

fn other_id(content: &mut [u8]) {
    let at = content.len() - 10;
    content[at] = if content[at] == b'x' { b'y' } else { b'x' };
}

fn other_number(content: &mut [u8]) {
    let at = content.len() - 2;
    content[at] = if content[at] == b'1' { b'2' } else { b'1' };
}

fn other_node(content: &mut Vec<u8>) {
    let text = String::from_utf8(content.clone()).unwrap();
    let line = text.lines().find(|line| line.starts_with("node.id=")).unwrap();
    *content = text.replace(line, "node.id=77").into_bytes();
}

#[test]
fn a_folder_after_records_were_deleted_is_sound() {
    let folder = filled("verify-deleted", false);
    let broker = start(&folder);
    let mut client = Client::connect(broker.address);
    let end = client.end(TOPIC, 0);
    assert_eq!(client.delete_records(TOPIC, 0, end / 2).0, 0);
    let end = client.end(TOPIC, 1);
    assert_eq!(client.delete_records(TOPIC, 1, end).0, 0);
    broker.kill9();
    must_be_sound(&folder);
    start(&folder).stop_cleanly();
    must_be_sound(&folder);
}

#[test]
fn a_folder_that_a_broker_uses_cannot_be_checked() {
    let folder = Folder::new("verify-used");
    let broker = start(&folder);
    let said = Command::new(env!("CARGO_BIN_EXE_corelane")).arg("verify").arg(folder.data()).output().unwrap();
    assert_eq!(said.status.code(), Some(2));
    let error = String::from_utf8(said.stderr).unwrap();
    assert!(error.contains(&format!("in use by process {}", broker.id())), "{error}");
    broker.stop_cleanly();
    let said =
        Command::new(env!("CARGO_BIN_EXE_corelane")).args(["verify", "--json"]).arg(folder.data()).output().unwrap();
    assert_eq!(said.status.code(), Some(0));
    assert!(String::from_utf8(said.stdout).unwrap().contains("\"sound\":true"));
    let said = Command::new(env!("CARGO_BIN_EXE_corelane")).arg("verify").arg(folder.path()).output().unwrap();
    assert_eq!(said.status.code(), Some(2), "it is no data folder");
}

/// Whatever is in the files: it says something, and never falls over.
#[test]
fn random_damage_never_makes_it_panic() {
    let mut random = Random::new("random damage");
    for is_killed in [false, true] {
        let folder = filled("verify-random", is_killed);
        let mut files = Vec::new();
        collect(&folder.data(), &mut files);
        for _ in 0..150 {
            let path = &files[random.below(files.len() as u64) as usize];
            let before = fs::read(path).unwrap();
            damage_at_random(path, &before, &mut random);
            let _whatever = verify(&folder);
            fs::write(path, before).unwrap();
        }
        must_be_sound(&folder);
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}

fn damage_at_random(path: &Path, before: &[u8], random: &mut Random) {
    let at = random.below(before.len().max(1) as u64);
    // The beginning is where most of what is meant stands.
    let at = if random.below(2) == 0 { at } else { at.min(random.below(600)) };
    let mut file = File::options().write(true).open(path).unwrap();
    match random.below(4) {
        0 => file.set_len(at).unwrap(),
        1 => {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&[0; 40]).unwrap();
        }
        2 => {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&[0xff; 9]).unwrap();
        }
        _ => {
            let mut byte = before.get(at as usize).copied().unwrap_or(0);
            byte ^= 1 << random.below(8);
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&[byte]).unwrap();
        }
    }
}
