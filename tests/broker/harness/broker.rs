//! The broker in a child process.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Folder;

/// What the kernel gives to outgoing connections begins here.
const EPHEMERAL_PORTS: u16 = 32_768;
const FIRST_PORT: u16 = 12_000;

/// How a broker is started.
#[derive(Clone)]
pub struct Start {
    data: PathBuf,
    errors: PathBuf,
    cores: usize,
    port: u16,
    descriptors: Option<u32>,
    settings: Vec<String>,
}

impl Start {
    /// On a port of the kernel's choice, two cores.
    pub fn on(folder: &Folder) -> Self {
        Self {
            data: folder.data(),
            errors: folder.path().join("stderr"),
            cores: 2,
            port: 0,
            descriptors: None,
            settings: Vec::new(),
        }
    }

    /// With its data in another folder.
    pub fn data(mut self, data: &Path) -> Self {
        data.clone_into(&mut self.data);
        self
    }

    /// On a port that stays the same however often it is started.
    pub fn on_fixed_port(folder: &Folder) -> Self {
        Self { port: fixed_port(), ..Self::on(folder) }
    }

    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// With so many descriptors and no more.
    pub fn descriptors(mut self, most: u32) -> Self {
        self.descriptors = Some(most);
        self
    }

    pub fn cores(mut self, cores: usize) -> Self {
        self.cores = cores;
        self
    }

    pub fn set(mut self, setting: &str) -> Self {
        self.settings.push(setting.to_owned());
        self
    }

    /// The command line, with what it prints caught.
    pub fn command(&self) -> Command {
        // Another build, where somebody names one.
        let program = std::env::var_os("CORELANE").unwrap_or_else(|| env!("CARGO_BIN_EXE_corelane").into());
        let mut command = match self.descriptors {
            None => Command::new(program),
            Some(most) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(format!("ulimit -n {most} && exec \"$0\" \"$@\"")).arg(program);
                shell
            }
        };
        command.arg("serve").arg("--data-dir").arg(&self.data);
        command.args(["--cores", &self.cores.to_string(), "--listen", &format!("127.0.0.1:{}", self.port)]);
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        let errors = File::options().create(true).append(true).open(&self.errors).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        command
    }

    /// Starts it and waits until it says that it is ready.
    pub fn start(&self) -> Broker {
        self.try_start().unwrap_or_else(|(status, said)| panic!("not ready: {status}\n{said}"))
    }

    /// Starts it and waits until it is ready, or has ended: then its exit status and what it logged.
    ///
    /// # Errors
    /// It has ended.
    pub fn try_start(&self) -> Result<Broker, (ExitStatus, String)> {
        Broker::run(&mut self.command(), &self.errors)
    }
}

/// A port that the kernel gives to nobody who asks for any: while the broker is down, a client that knocks on a port of
/// the kernel's choice may be given that very port and then talk to itself.
fn fixed_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = u32::from(EPHEMERAL_PORTS - FIRST_PORT);
    loop {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = FIRST_PORT + ((std::process::id() * 37 + step) % span) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A broker that serves; killed when dropped.
pub struct Broker {
    child: Child,
    errors: PathBuf,
    errors_from: u64,
    pub address: SocketAddr,
}

impl Broker {
    fn run(command: &mut Command, errors: &Path) -> Result<Self, (ExitStatus, String)> {
        let errors_from = fs::metadata(errors).map_or(0, |found| found.len());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        if !line.starts_with("corelane ready") {
            let status = child.wait().unwrap();
            let all = fs::read(errors).unwrap_or_default();
            return Err((status, String::from_utf8_lossy(&all[errors_from as usize..]).into_owned()));
        }
        let address = line.split_whitespace().last().unwrap().parse().unwrap();
        Ok(Self { child, errors: errors.to_owned(), errors_from, address })
    }

    pub fn bootstrap(&self) -> String {
        self.address.to_string()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged since it was started.
    pub fn log(&self) -> String {
        let all = fs::read(&self.errors).unwrap_or_default();
        String::from_utf8_lossy(&all[self.errors_from as usize..]).into_owned()
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// kill -9.
    pub fn kill9(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// SIGTERM, and the exit status.
    pub fn stop(mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.child.wait().unwrap()
    }

    /// SIGTERM, which must end with exit status 0.
    pub fn stop_cleanly(self) {
        let errors = self.errors.clone();
        let status = self.stop();
        assert!(status.success(), "{status}\n{}", fs::read_to_string(errors).unwrap_or_default());
    }

    /// A line of `/proc/PID/status` in bytes, for example `VmRSS`.
    pub fn memory(&self, what: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(what)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Open files and sockets.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.id())).unwrap().count()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let from = log.len().saturating_sub(4000);
            eprintln!("the broker's last words:\n{}", String::from_utf8_lossy(&log.as_bytes()[from..]));
        }
    }
}
