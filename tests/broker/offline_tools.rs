//! `corelane dump`, `import` and `repair catalog`, on real folders of real brokers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::harness::batches::Writer;
use super::harness::client::Produced;
use super::harness::folder::files_ending;
use super::harness::{Broker, Client, Folder, Start};

const TOPIC: &str = "tools";

fn start(folder: &Folder) -> Broker {
    Start::on(folder).set("corelane.log.file.bytes=4194304").start()
}

fn corelane(words: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).args(words).args(paths).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn must_succeed(output: &Output) -> String {
    assert!(output.status.success(), "{}", said(output));
    said(output)
}

fn must_be_sound(folder: &Folder) {
    must_succeed(&corelane(&["verify"], &[&folder.data()]));
}

/// A folder with one topic of two partitions and several segments each; gives what is in it and the writers.
fn filled(name: &str) -> (Folder, Vec<Vec<u8>>, Vec<Writer>) {
    let folder = Folder::new(name);
    let broker = start(&folder);
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, 2, &[("segment.bytes", "1048576"), ("retention.ms", "123456789")]);
    let mut writers: Vec<_> = (0..2).map(|_| Writer::new(client.init_producer_id())).collect();
    for _ in 0..50 {
        for (partition, writer) in (0..).zip(&mut writers) {
            assert_eq!(client.produce(TOPIC, partition, &writer.batch(3, "tools", 8_000)).error, 0);
        }
    }
    let bytes = (0..2).map(|partition| client.read_all(TOPIC, partition)).collect();
    broker.stop_cleanly();
    (folder, bytes, writers)
}

#[test]
fn every_kind_of_file_can_be_dumped() {
    let (folder, ..) = filled("dump");
    let partition = folder.partition(TOPIC, 0);
    let segment = &files_ending(&partition, ".log")[0];
    let text = must_succeed(&corelane(&["dump", "--values", "text"], &[segment]));
    assert!(text.contains("base_offset: 0,last_offset: 2"), "{text:.600}");
    assert!(text.contains("value: tools:0:0:..."), "{text:.600}");
    let json = must_succeed(&corelane(&["dump", "--json", "--values", "base64"], &[segment]));
    assert!(json.lines().all(|line| line.starts_with("{\"file\":") && line.ends_with('}')));
    assert_eq!(json.lines().filter(|line| line.contains("\"record\"")).count() % 3, 0);
    let own = folder.data().join("corelane");
    let mut files = Vec::new();
    for ending in [".index", ".timeindex", ".snapshot", ".seal", "leader-epoch-checkpoint", "partition.metadata"] {
        files.extend(files_ending(&partition, ending));
    }
    for shard in ["shard-0", "shard-1"] {
        files.extend(files_ending(&own.join(shard), ".full"));
        files.extend(files_ending(&own.join(shard), "").into_iter().filter(|path| is_log(path)));
    }
    files.extend(["store", "catalog-0", "catalog-1"].map(|name| own.join(name)));
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let text = must_succeed(&corelane(&["dump"], &paths));
    for wanted in [
        "position: ",
        "log_crc: ",
        "last_sequence: ",
        "live_generation: ",
        "kind: topic made",
        "recovery_point: ",
        "kind: batch",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text:.3000}");
    }
    assert!(text.contains("retention.ms=123456789"));
    fs::write(folder.path().join("what"), "x").unwrap();
    assert!(!corelane(&["dump"], &[&folder.path().join("what")]).status.success());
}

fn is_log(path: &Path) -> bool {
    path.file_name().unwrap().to_string_lossy().starts_with("log-")
}

/// Copies a partition's folder out of a data folder, as a person would.
fn copy_of(folder: &Folder, partition: i32, to: &Folder) -> PathBuf {
    let copy = to.path().join(format!("{TOPIC}-{partition}"));
    fs::create_dir_all(&copy).unwrap();
    for file in files_ending(&folder.partition(TOPIC, partition), "") {
        fs::copy(&file, copy.join(file.file_name().unwrap())).unwrap();
    }
    copy
}

#[test]
fn a_partition_is_taken_in_whole_and_only_into_an_empty_place() {
    let (from, bytes, writers) = filled("import-from");
    let to = Folder::new("import-to");
    start(&to).stop_cleanly();
    let copies = [copy_of(&from, 0, &to), copy_of(&from, 1, &to)];
    let data = to.data();
    let words = |yes: bool| {
        let mut words = vec!["import", "--data", data.to_str().unwrap(), "--topic", "other"];
        words.extend(yes.then_some("--yes"));
        words
    };
    let text = must_succeed(&corelane(&words(false), &[&copies[0]]));
    assert!(text.contains("Nothing was changed") && !to.partition("other", 0).exists(), "{text}");
    for copy in &copies {
        must_succeed(&corelane(&words(true), &[copy]));
    }
    let again = corelane(&words(true), &[&copies[0]]);
    assert!(!again.status.success() && said(&again).contains("only an empty partition"), "{}", said(&again));
    let broker = start(&to);
    let mut client = Client::connect(broker.address);
    for (partition, wanted) in (0..).zip(&bytes) {
        assert!(client.read_all("other", partition) == *wanted, "{}", broker.log());
    }
    // The newest batches of its producer are known, and nobody gets that producer's id.
    for (partition, mut writer) in (0..).zip(writers) {
        let end = client.end("other", partition);
        assert!(client.init_producer_id() > writer.id);
        let next = writer.batch(3, "next", 10);
        assert_eq!(client.produce("other", partition, &next), Produced { error: 0, base_offset: end });
        assert_eq!(client.produce("other", partition, &next), Produced { error: 0, base_offset: end });
        assert_eq!(client.end("other", partition), end + 3);
    }
    broker.stop_cleanly();
    must_be_sound(&to);
}

#[test]
fn an_import_into_an_empty_partition_gives_it_another_log() {
    let (from, bytes, _) = filled("import-empty-from");
    let to = Folder::new("import-empty-to");
    let broker = start(&to);
    Client::connect(broker.address).create_topic(TOPIC, 3, &[]);
    broker.stop_cleanly();
    let copy = copy_of(&from, 1, &to);
    let data = to.data();
    must_succeed(&corelane(&["import", "--yes", "--data", data.to_str().unwrap()], &[&copy]));
    for _ in 0..2 {
        let broker = start(&to);
        let mut client = Client::connect(broker.address);
        assert!(client.read_all(TOPIC, 1) == bytes[1]);
        assert_eq!((client.end(TOPIC, 0), client.end(TOPIC, 2)), (0, 0));
        broker.kill9();
    }
    start(&to).stop_cleanly();
    must_be_sound(&to);
}

#[test]
fn a_damaged_partition_is_not_taken_in() {
    let (from, ..) = filled("import-damaged-from");
    let to = Folder::new("import-damaged-to");
    start(&to).stop_cleanly();
    let copy = copy_of(&from, 0, &to);
    let segment = &files_ending(&copy, ".log")[0];
    let mut content = fs::read(segment).unwrap();
    content[5_000] ^= 1;
    fs::write(segment, content).unwrap();
    let data = to.data();
    let output = corelane(&["import", "--yes", "--data", data.to_str().unwrap()], &[&copy]);
    assert!(!output.status.success() && said(&output).contains("a wrong checksum"), "{}", said(&output));
    assert!(!to.partition(TOPIC, 0).exists());
    must_be_sound(&to);
}

/// Takes the catalog away and has it made anew.
fn repair(folder: &Folder) -> String {
    let own = folder.data().join("corelane");
    for name in ["catalog-0", "catalog-1"] {
        fs::remove_file(own.join(name)).unwrap();
    }
    let data = folder.data();
    let words = ["repair", "catalog", "--data", data.to_str().unwrap()];
    let text = must_succeed(&corelane(&words, &[]));
    assert!(text.contains("Nothing was changed") && !own.join("catalog-0").exists(), "{text}");
    must_succeed(&corelane(&[&words[..], &["--yes"]].concat(), &[]))
}

#[test]
fn a_lost_catalog_is_made_anew_and_nothing_else_is_lost() {
    for is_killed in [false, true] {
        let (folder, mut bytes, mut writers) = filled("repair");
        let broker = start(&folder);
        let mut client = Client::connect(broker.address);
        let id = client.topic(TOPIC).unwrap().0;
        let sent = writers[0].batch(3, "last", 10);
        assert_eq!(client.produce(TOPIC, 0, &sent).error, 0);
        bytes[0] = client.read_all(TOPIC, 0);
        if is_killed {
            broker.kill9()
        } else {
            broker.stop_cleanly()
        }
        let text = repair(&folder);
        assert!(text.contains("as its seals say") && text.contains("what was set on the topic is lost"), "{text}");
        let broker = start(&folder);
        let mut client = Client::connect(broker.address);
        assert_eq!(client.topic(TOPIC), Some((id, 2)));
        for (partition, wanted) in (0..).zip(&bytes) {
            assert!(client.read_all(TOPIC, partition) == *wanted, "{}", broker.log());
        }
        let end = client.end(TOPIC, 0);
        assert_eq!(client.produce(TOPIC, 0, &sent), Produced { error: 0, base_offset: end - 3 });
        assert!(client.init_producer_id() > writers[1].id);
        client.create_topic("new", 1, &[]);
        assert_eq!(client.produce("new", 0, &writers[0].batch(1, "new", 10)).error, 0);
        broker.stop_cleanly();
        must_be_sound(&folder);
        let data = folder.data();
        let again = corelane(&["repair", "catalog", "--data", data.to_str().unwrap()], &[]);
        assert!(!again.status.success() && said(&again).contains("nothing to repair"), "{}", said(&again));
    }
}

/// The beginning that can be read tells what was set on topics.
#[test]
fn settings_come_back_from_the_readable_beginning_of_a_catalog() {
    let (folder, bytes, _) = filled("repair-beginning");
    let broker = start(&folder);
    let mut client = Client::connect(broker.address);
    ["later", "last"].iter().for_each(|topic| client.create_topic(topic, 1, &[("retention.ms", "1")]));
    broker.stop_cleanly();
    let catalog = folder.data().join("corelane/catalog-0");
    let mut content = fs::read(&catalog).unwrap();
    let salt = content[32..40].to_vec();
    let groups: Vec<usize> = (8192..content.len())
        .step_by(4096)
        .filter(|at| content[*at..].starts_with(b"CLG1") && content[at + 8..at + 16] == salt)
        .collect();
    content[groups[groups.len() - 2] + 66] ^= 1;
    fs::write(&catalog, content).unwrap();
    assert_eq!(corelane(&["verify"], &[&folder.data()]).status.code(), Some(1));
    let data = folder.data();
    let text = must_succeed(&corelane(&["repair", "catalog", "--yes", "--data", data.to_str().unwrap()], &[]));
    assert!(text.contains("later: what was set") && !text.contains("tools: what was set"), "{text}");
    let broker = start(&folder);
    assert!(Client::connect(broker.address).read_all(TOPIC, 0) == bytes[0]);
    broker.stop_cleanly();
    let text = must_succeed(&corelane(
        &["dump"],
        &[&folder.data().join("corelane/catalog-0"), &folder.data().join("corelane/catalog-1")],
    ));
    assert!(text.contains("retention.ms=123456789"), "{text}");
    must_be_sound(&folder);
}
