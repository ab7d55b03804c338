//! What must hold before the first shard starts. Each failure is one sentence that says how to mend it.
//!
//! Order in `main`: arguments → [`StopSignals::block`] (threads inherit it) → [`lock_data_dir`] → [`check_memlock`],
//! [`check_io_uring`] → [`choose_cpus`] → [`bind`] → start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sched::sched_getaffinity;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

use super::net;

/// What an executor needs at least to register with the kernel, in bytes.
const MEMLOCK_BYTES: u64 = 512 * 1024;
/// What a process holds beside files and connections: its streams, the listener, the lock.
const OWN_DESCRIPTORS: usize = 16;
/// What an executor holds: its rings and what wakes it.
const OWN_DESCRIPTORS_OF_SHARD: usize = 16;
/// Exit status when a second signal cuts the clean stop short.
const EXIT_CUT_SHORT: i32 = 130;

/// The data folder, held against other processes until dropped (or the process ends in any way).
pub struct DataDirLock {
    _file: Flock<File>,
}

/// Makes `data_dir` and its `corelane` folder and locks them for this process.
///
/// # Errors
/// One sentence when the folder cannot be written or another process holds it.
pub fn lock_data_dir(data_dir: &Path) -> Result<DataDirLock, String> {
    let ours = data_dir.join("corelane");
    let place = ours.join("lock");
    fs::create_dir_all(&ours).map_err(|error| not_writable(data_dir, &error))?;
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&place);
    let file = opened.map_err(|error| not_writable(data_dir, &error))?;
    let mut file = Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(file, error)| not_lockable(data_dir, file, error))?;
    note_owner(&mut file).map_err(|error| not_writable(data_dir, &error))?;
    Ok(DataDirLock { _file: file })
}

/// Keeps brokers out of `data_dir` without writing anything; `None` where no broker has ever locked it.
///
/// # Errors
/// One sentence when another process holds it.
pub fn watch_data_dir(data_dir: &Path) -> Result<Option<DataDirLock>, String> {
    let file = match File::open(data_dir.join("corelane").join("lock")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("the lock of data folder {} cannot be read: {error}", data_dir.display())),
    };
    let held = Flock::lock(file, FlockArg::LockExclusiveNonblock);
    held.map(|file| Some(DataDirLock { _file: file })).map_err(|(file, error)| not_lockable(data_dir, file, error))
}

fn note_owner(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())
}

fn not_writable(data_dir: &Path, error: &io::Error) -> String {
    format!(
        "data folder {} cannot be written ({error}): give this user access to it, or name another with --data-dir",
        data_dir.display()
    )
}

fn not_lockable(data_dir: &Path, mut file: File, error: Errno) -> String {
    let place = data_dir.display();
    if error != Errno::EWOULDBLOCK {
        return format!("data folder {place} cannot be locked ({error}): put it on a local file system");
    }
    let mut owner = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut owner));
    let owner = if read.is_ok() && !owner.trim().is_empty() {
        format!("process {}", owner.trim())
    } else {
        "another process".to_string()
    };
    format!("data folder {place} is in use by {owner}: stop that one, or name another folder with --data-dir")
}

/// Raises the limit of locked memory as far as allowed and checks that executors can start with it.
///
/// # Errors
/// One sentence with the limit and how to raise it.
pub fn check_memlock() -> Result<(), String> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_MEMLOCK).map_err(|error| format!("RLIMIT_MEMLOCK: {error}"))?;
    if soft < hard && setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard).is_ok() {
        return enough_memlock(hard);
    }
    enough_memlock(soft)
}

fn enough_memlock(limit: u64) -> Result<(), String> {
    if limit >= MEMLOCK_BYTES {
        return Ok(());
    }
    Err(format!(
        "locked memory is limited to {} KiB and {} KiB are needed: raise it with `ulimit -l {}` or LimitMEMLOCK= in the \
         service file",
        limit / 1024,
        MEMLOCK_BYTES / 1024,
        MEMLOCK_BYTES / 1024
    ))
}

/// Raises the limit of open files as far as allowed; returns it.
#[must_use]
pub fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft }
}

/// How many descriptors may be what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Files of all shards.
    pub of_files: usize,
    /// Connections.
    pub of_connections: usize,
}

/// Half of the descriptors are for files, the rest for connections and what the process needs by itself.
#[must_use]
pub fn share_descriptors(limit: u64, shards: usize) -> Descriptors {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let of_files = limit / 2;
    let own = OWN_DESCRIPTORS + shards.saturating_mul(OWN_DESCRIPTORS_OF_SHARD);
    let of_connections = (limit - of_files).saturating_sub(own).max(1);
    Descriptors { of_files, of_connections }
}

/// Sets up an io_uring once and closes it.
///
/// # Errors
/// One sentence with what forbids it.
pub fn check_io_uring() -> Result<(), String> {
    io_uring::IoUring::new(2).map(drop).map_err(|error| no_io_uring(&error))
}

fn no_io_uring(error: &io::Error) -> String {
    let mend = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => {
            "set sysctl kernel.io_uring_disabled=0, and let the container's seccomp profile pass io_uring_setup"
        }
        Some(Errno::ENOSYS) => "run Linux 5.8 or later, with io_uring built in and not filtered by seccomp",
        Some(Errno::ENOMEM) => "raise the limit of locked memory (`ulimit -l`)",
        _ => "run Linux 5.8 or later",
    };
    format!("io_uring cannot be used here ({error}): {mend}")
}

/// The processors for `wanted` shards (all that this process may run on, if none is wanted), lowest number first.
///
/// # Errors
/// One sentence when there are fewer.
pub fn choose_cpus(wanted: Option<usize>) -> Result<Vec<usize>, String> {
    let allowed = allowed_cpus().map_err(|error| format!("the processors cannot be listed: {error}"))?;
    choose_of(allowed, wanted)
}

fn choose_of(mut allowed: Vec<usize>, wanted: Option<usize>) -> Result<Vec<usize>, String> {
    let wanted = wanted.unwrap_or(allowed.len());
    if wanted == 0 {
        return Err("0 cores were asked for: --cores is at least 1".to_string());
    }
    if wanted > allowed.len() {
        return Err(format!(
            "{wanted} cores were asked for and this process may run on {}: lower --cores (corelane.cores), or widen the \
             affinity mask",
            allowed.len()
        ));
    }
    allowed.truncate(wanted);
    Ok(allowed)
}

fn allowed_cpus() -> nix::Result<Vec<usize>> {
    let mask = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..nix::sched::CpuSet::count()).filter(|cpu| mask.is_set(*cpu).unwrap_or(false)).collect())
}

/// Listens on `address`.
///
/// # Errors
/// One sentence when the port is taken or the address is not this host's.
pub fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    net::listen(address).map_err(|error| {
        let mend = match error.kind() {
            io::ErrorKind::AddrInUse => "another process has this port: stop it, or name another with --listen",
            io::ErrorKind::AddrNotAvailable => "this host has no such address: name another with --listen",
            io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege: name another with --listen",
            _ => "name another address with --listen",
        };
        format!("cannot listen on {address} ({error}): {mend}")
    })
}

/// SIGINT and SIGTERM, kept from interrupting any thread and waited for by one.
pub struct StopSignals {
    set: SigSet,
}

impl StopSignals {
    /// Blocks the signals in this thread and all that it starts from now on.
    ///
    /// # Errors
    /// One sentence when the kernel refuses.
    pub fn block() -> Result<Self, String> {
        let set = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        set.thread_block().map_err(|error| format!("signals cannot be blocked: {error}"))?;
        Ok(Self { set })
    }

    /// Waits for the next signal; returns its name.
    fn wait(&self) -> &'static str {
        loop {
            if let Ok(signal) = self.set.wait() {
                return signal.as_str();
            }
        }
    }

    /// Heeds them from now on, in a thread of its own: until [`StopWatch::serving`] one ends the process at once (a start
    /// that is cut short is as good as a crash in it), then the first is for [`StopWatch::wait`], and a second one cuts the
    /// clean stop short.
    #[must_use]
    pub fn watch(self) -> StopWatch {
        let is_serving = Arc::new(AtomicBool::new(false));
        let (sender, stop) = mpsc::channel();
        let serves = Arc::clone(&is_serving);
        thread::spawn(move || {
            let signal = self.wait();
            if !serves.load(Ordering::SeqCst) {
                eprintln!("corelane: {signal} during the start: leaving; the next start begins where this one began");
                std::process::exit(0);
            }
            // Nobody waits any more where the broker has failed meanwhile.
            let _ = sender.send(signal);
            let signal = self.wait();
            tracing::warn!("{signal} again: leaving at once");
            std::process::exit(EXIT_CUT_SHORT);
        });
        StopWatch { is_serving, stop }
    }
}

/// The signals, heeded by a thread; see [`StopSignals::watch`].
pub struct StopWatch {
    is_serving: Arc<AtomicBool>,
    stop: Receiver<&'static str>,
}

impl StopWatch {
    /// From now on a signal means a clean stop.
    pub fn serving(&self) {
        self.is_serving.store(true, Ordering::SeqCst);
    }

    /// Waits for the first signal; returns its name.
    #[must_use]
    pub fn wait(&self) -> &'static str {
        self.stop.recv().unwrap_or("a lost signal")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_on_a_folder_names_the_first_owner() {
        let folder = std::env::temp_dir().join(format!("corelane-lock-{}", std::process::id()));
        let first = lock_data_dir(&folder).unwrap();
        let refused = lock_data_dir(&folder).err().unwrap();
        assert!(refused.contains(&format!("in use by process {}", std::process::id())), "{refused}");
        let refused = watch_data_dir(&folder).err().unwrap();
        assert!(refused.contains(&format!("in use by process {}", std::process::id())), "{refused}");
        drop(first);
        assert!(watch_data_dir(&folder).unwrap().is_some());
        assert!(lock_data_dir(&folder).is_ok());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_refused_in_a_sentence() {
        let refused = lock_data_dir(Path::new("/proc/nowhere")).err().unwrap();
        assert!(refused.starts_with("data folder /proc/nowhere cannot be written"), "{refused}");
    }

    #[test]
    fn limits_name_what_is_needed() {
        assert!(enough_memlock(MEMLOCK_BYTES).is_ok());
        assert!(enough_memlock(64 * 1024).unwrap_err().contains("limited to 64 KiB and 512 KiB are needed"));
    }

    #[test]
    fn files_and_connections_share_the_descriptors() {
        assert_eq!(share_descriptors(512, 2), Descriptors { of_files: 256, of_connections: 208 });
        assert_eq!(share_descriptors(40, 2), Descriptors { of_files: 20, of_connections: 1 });
    }

    #[test]
    fn cores_come_from_the_affinity_mask() {
        assert_eq!(choose_of(vec![2, 3, 7], None), Ok(vec![2, 3, 7]));
        assert_eq!(choose_of(vec![2, 3, 7], Some(2)), Ok(vec![2, 3]));
        assert!(choose_of(vec![2, 3], Some(3)).unwrap_err().starts_with("3 cores were asked for"));
        assert!(choose_of(vec![2, 3], Some(0)).is_err());
        assert!(!choose_cpus(None).unwrap().is_empty());
    }

    #[test]
    fn a_taken_port_is_named() {
        let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap();
        let refused = bind(address).unwrap_err();
        assert!(
            refused.contains(&address.to_string()) && refused.contains("another process has this port"),
            "{refused}"
        );
    }

    #[test]
    fn what_forbids_io_uring_is_named() {
        assert!(no_io_uring(&Errno::EPERM.into()).contains("kernel.io_uring_disabled"));
        assert!(no_io_uring(&Errno::ENOSYS.into()).contains("Linux 5.8"));
        assert!(check_io_uring().is_ok());
    }

    #[test]
    fn a_stop_signal_is_waited_for_and_interrupts_nothing() {
        let signals = StopSignals::block().unwrap();
        nix::sys::signal::raise(Signal::SIGTERM).unwrap();
        assert_eq!(signals.wait(), "SIGTERM");
        nix::sys::signal::raise(Signal::SIGINT).unwrap();
        assert_eq!(signals.wait(), "SIGINT");
    }
}
