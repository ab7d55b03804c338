//! The broker that is killed: corelane, or Apache Kafka with `TORTURE_KAFKA`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::super::harness::{Broker, Folder, Start};

/// A broker that can be killed and started again at the same address.
pub trait Victim {
    fn bootstrap(&self) -> String;
    /// Until clients are back after a start.
    fn settling_ms(&self) -> u64;
    fn start(&mut self, cores: usize);
    fn kill9(&mut self);
    /// A start that is killed after so many ms.
    fn die_in_start(&mut self, after_ms: u64);
    fn stop(&mut self);
}

pub fn is_kafka() -> bool {
    std::env::var_os("TORTURE_KAFKA").is_some()
}

pub fn victim(folder: &Folder) -> Box<dyn Victim> {
    match std::env::var("TORTURE_KAFKA").ok() {
        Some(port) => Box::new(Kafka { port: port.parse().unwrap(), data: folder.data() }),
        None => {
            // Small files and frequent checkpoints, so that kills hit rolls, reuse of log files and checkpoints.
            let start = Start::on_fixed_port(folder)
                .set("corelane.log.file.bytes=4194304")
                .set("corelane.checkpoint.interval.ms=150")
                .set("log.segment.bytes=1048576")
                .set("group.initial.rebalance.delay.ms=0");
            Box::new(Corelane { start, broker: None, address: String::new() })
        }
    }
}

struct Corelane {
    start: Start,
    broker: Option<Broker>,
    address: String,
}

impl Victim for Corelane {
    fn bootstrap(&self) -> String {
        self.address.clone()
    }

    fn settling_ms(&self) -> u64 {
        100
    }

    fn start(&mut self, cores: usize) {
        let broker = self.start.clone().cores(cores).start();
        self.address = broker.bootstrap();
        self.broker = Some(broker);
    }

    fn kill9(&mut self) {
        self.broker.take().unwrap().kill9();
    }

    fn die_in_start(&mut self, after_ms: u64) {
        let mut child = self.start.command().spawn().unwrap();
        thread::sleep(Duration::from_millis(after_ms));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn stop(&mut self) {
        self.broker.take().unwrap().stop_cleanly();
    }
}

struct Kafka {
    port: u16,
    data: PathBuf,
}

impl Kafka {
    fn run(&self, what: &str) {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts/kafka");
        let mut command = Command::new(script);
        command.args([what, "--port", &self.port.to_string(), "--data"]).arg(&self.data);
        assert!(command.status().unwrap().success(), "Kafka does not {what}");
    }
}

impl Victim for Kafka {
    fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn settling_ms(&self) -> u64 {
        1_500
    }

    fn start(&mut self, _cores: usize) {
        self.run("start");
    }

    fn kill9(&mut self) {
        let pid = fs::read_to_string(self.data.join("kafka.pid")).unwrap().trim().parse().unwrap();
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        while fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            thread::sleep(Duration::from_millis(5));
        }
    }

    // Its start takes so long that the clients would give up.
    fn die_in_start(&mut self, _after_ms: u64) {}

    fn stop(&mut self) {
        self.run("stop");
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        if thread::panicking() {
            self.run("stop");
        }
    }
}
