//! What keeps a broker from starting is one sentence on standard error and exit status 1; wrong arguments are 2.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::harness::batches::batch_of;
use super::harness::{Client, Folder, Start};

/// Runs a command that must refuse, and checks its status and the one sentence that it prints.
fn refuses(command: &mut Command, status: i32, says: &str) {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(text.contains(says), "{text:?} does not say {says:?}");
    assert_eq!(text.trim_end().lines().count(), 1, "more than a sentence: {text}");
    assert!(output.stdout.is_empty(), "a broker that refuses says nothing else");
}

fn refuses_to_start(start: &Start, says: &str) {
    refuses(&mut start.command(), 1, says);
}

#[test]
fn a_port_that_is_taken() {
    let folder = Folder::new("port-taken");
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let start = Start::on(&folder).port(holder.local_addr().unwrap().port());
    refuses_to_start(&start, "another process has this port");
    drop(holder);
}

#[test]
fn a_folder_that_another_broker_uses() {
    let folder = Folder::new("in-use");
    let first = Start::on(&folder).start();
    refuses_to_start(&Start::on(&folder), &format!("is in use by process {}", first.id()));
    first.stop_cleanly();
    // The lock went with its owner.
    Start::on(&folder).start().stop_cleanly();
}

#[test]
fn a_folder_that_cannot_be_written() {
    let folder = Folder::new("no-folder");
    // Root writes into every folder; a file in its place stops root too.
    fs::write(folder.data(), "").unwrap();
    refuses_to_start(&Start::on(&folder), "cannot be written");
}

#[test]
fn a_folder_that_is_kafkas() {
    let folder = Folder::new("kafkas");
    fs::create_dir_all(folder.data()).unwrap();
    fs::write(folder.data().join("meta.properties"), "version=1\n").unwrap();
    refuses_to_start(&Start::on(&folder), "is a log dir of Apache Kafka");
}

#[test]
fn a_folder_of_another_node() {
    let folder = Folder::new("other-node");
    Start::on(&folder).start().stop_cleanly();
    refuses_to_start(&Start::on(&folder).set("node.id=7").set("corelane.log=error"), "belongs to node.id=1");
}

#[test]
fn more_cores_than_there_are() {
    let folder = Folder::new("cores");
    refuses_to_start(&Start::on(&folder).cores(1000), "1000 cores were asked for");
}

#[test]
fn too_little_locked_memory() {
    let folder = Folder::new("memlock");
    let broker = Start::on(&folder).command();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -l 64; exec \"$0\" \"$@\""]).arg(broker.get_program()).args(broker.get_args());
    refuses(&mut limited, 1, "locked memory is limited to 64 KiB and 512 KiB are needed");
}

/// A start may last as long as a log is long: who stops the broker meanwhile does not wait for it, and loses nothing.
#[test]
fn a_signal_during_the_start_is_heeded_at_once() {
    const BATCHES: i64 = 60;
    let folder = Folder::new("stopped-early");
    let broker = Start::on(&folder).start();
    let mut client = Client::connect(broker.address);
    client.create_topic("early", 2, &[]);
    for at in 0..BATCHES {
        let produced = client.produce("early", (at % 2) as i32, &batch_of(-1, -1, 1, "early", 1_000_000));
        assert_eq!(produced.error, 0);
    }
    broker.kill9();
    let is_heeded = || {
        let mut child = Start::on(&folder).command().stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(log.any(|line| line.unwrap().contains("recovering")), "an unclean start says so");
        kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        output.stdout.is_empty() && log.any(|line| line.unwrap().contains("SIGTERM during the start"))
    };
    // It may be too quick now and then.
    assert!((0..5).any(|_| is_heeded()), "a start went on in spite of the signal, five times");
    let broker = Start::on(&folder).start();
    let mut client = Client::connect(broker.address);
    assert_eq!((client.end("early", 0), client.end("early", 1)), (BATCHES / 2, BATCHES / 2));
    broker.stop_cleanly();
}

#[test]
fn settings_that_are_wrong() {
    let folder = Folder::new("settings");
    let with = |setting: &str| Start::on(&folder).set(setting).command();
    refuses(&mut with("log.retention.hourz=1"), 2, "the nearest name is log.retention.hours");
    refuses(&mut with("ssl.keystore.location=x"), 2, "leave it out");
    assert!(!folder.data().exists(), "a refused start leaves nothing behind");
}

#[test]
fn arguments_that_are_wrong() {
    let output = Command::new(env!("CARGO_BIN_EXE_corelane")).args(["serve", "--bogus"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--bogus"));
}
