//! When calls fail, take their time, or are the last ones: everything that makes the disk of the simulator one that is not
//! to be trusted. A disk for which nothing was said answers at once and always does what it is told.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corelane::log::crc::crc32c;

use super::content::SECTOR;
use super::tree::FileNode;
use crate::support::dice::Dice;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Open,
    MakeFolder,
    List,
    Rename,
    Remove,
    RemoveFolder,
    SyncFolder,
    SyncAll,
    /// Into the page cache.
    Write,
    /// Past the page cache.
    WriteBlocks,
    Read,
    SyncData,
    Truncate,
}

/// Which calls are meant: of a kind (or any), on a path that contains a text, and how many of them pass before.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub call: Option<Call>,
    pub part: &'static str,
    pub after: u64,
}

impl Point {
    /// The call with this number, whatever it is.
    pub fn any(after: u64) -> Self {
        Self { call: None, part: "", after }
    }

    /// True when this is the call; counts it otherwise.
    fn meets(&mut self, call: Call, path: &Path) -> bool {
        if self.call.is_some_and(|wanted| wanted != call) || !contains(path, self.part) {
            return false;
        }
        let is_it = self.after == 0;
        self.after = self.after.saturating_sub(1);
        is_it
    }
}

fn contains(path: &Path, part: &str) -> bool {
    part.is_empty() || path.to_str().is_some_and(|path| path.contains(part))
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// What the kernel has stays; of the write that runs, a part.
    Kill,
    /// What was not flushed may be lost, and the write that runs is torn at any sector.
    PowerCut {
        /// The block beside the write that runs is spoilt, too.
        spoils: bool,
    },
}

/// What comes of a call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EIO; of a write anything may have happened.
    Error,
    /// Of a write only a part is taken, and the count says so; other calls are not touched.
    Short,
}

/// Calls that fail: from a point on, so many of them.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    pub from: Point,
    pub times: u64,
    pub fault: Fault,
}

/// What a call is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Go,
    /// The program ends within this call.
    Last(End),
    Fails,
    Short,
}

/// A write on its way.
pub struct Flight {
    pub file: FileNode,
    pub position: usize,
    /// Empty where nothing but zeros is written.
    pub bytes: Vec<u8>,
    pub length: usize,
    pub is_direct: bool,
    /// The block behind may be spoilt with it. Not so the other slot of the store: its two slots stand side by side, so that
    /// a disk which spoils neighbours can take both.
    pub has_neighbour: bool,
}

#[derive(Default)]
pub struct Faults {
    dice: RefCell<Option<Dice>>,
    end: RefCell<Option<(Point, End)>>,
    failures: RefCell<Vec<Failure>>,
    /// The call within which it ended.
    last: RefCell<Option<(Call, PathBuf)>>,
    /// The program has ended: nothing is done for it any more.
    is_over: Cell<bool>,
    calls: Cell<u64>,
    failed: Cell<u64>,
    trace: Cell<Option<u64>>,
    pub flights: RefCell<Vec<Option<Flight>>>,
}

fn gone() -> io::Error {
    io::Error::other("the program has ended")
}

impl Faults {
    /// From now on calls take their time, as the dice say.
    pub fn simulate(&self, dice: Dice) {
        *self.dice.borrow_mut() = Some(dice);
    }

    pub fn end_at(&self, point: Point, end: End) {
        *self.end.borrow_mut() = Some((point, end));
    }

    pub fn fail(&self, failure: Failure) {
        self.failures.borrow_mut().push(failure);
    }

    pub fn stop_failing(&self) {
        self.failures.borrow_mut().clear();
    }

    pub fn begin_again(&self) {
        *self.end.borrow_mut() = None;
        self.stop_failing();
        self.is_over.set(false);
        self.flights.borrow_mut().clear();
    }

    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// The call within which the program ended, once.
    pub fn last(&self) -> Option<(Call, PathBuf)> {
        self.last.take()
    }

    pub fn calls(&self) -> u64 {
        self.calls.get()
    }

    /// Calls that were made to fail.
    pub fn failed(&self) -> u64 {
        self.failed.get()
    }

    pub fn trace(&self) {
        self.trace.set(Some(0));
    }

    pub fn traced(&self) -> u64 {
        self.trace.get().unwrap_or_default()
    }

    /// Adds to the trace of all calls.
    pub fn note(&self, what: &str, path: &Path, position: usize, bytes: &[u8]) {
        let Some(so_far) = self.trace.get() else { return };
        let path = path.to_str().unwrap_or_default();
        let parts = [so_far, crc32c(what.as_bytes()).into(), crc32c(path.as_bytes()).into(), position as u64];
        let mixed = parts.iter().fold(u64::from(crc32c(bytes)) ^ (bytes.len() as u64) << 32, |mixed, part| {
            (mixed ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        });
        self.trace.set(Some(mixed));
    }

    /// What is to come of a call.
    pub fn begin(&self, call: Call, path: &Path) -> io::Result<Verdict> {
        if self.is_over.get() {
            return Err(gone());
        }
        self.calls.set(self.calls.get() + 1);
        if self.trace.get().is_some() {
            self.note("call", path, call as usize, &[]);
        }
        if let Some((point, end)) = &mut *self.end.borrow_mut()
            && point.meets(call, path)
        {
            self.is_over.set(true);
            *self.last.borrow_mut() = Some((call, path.to_owned()));
            return Ok(Verdict::Last(*end));
        }
        Ok(self.failure_of(call, path))
    }

    fn failure_of(&self, call: Call, path: &Path) -> Verdict {
        for failure in self.failures.borrow_mut().iter_mut().filter(|failure| failure.times > 0) {
            if failure.from.meets(call, path) {
                failure.times -= 1;
                self.failed.set(self.failed.get() + 1);
                let is_write = matches!(call, Call::Write | Call::WriteBlocks);
                return match failure.fault {
                    Fault::Short if is_write => Verdict::Short,
                    Fault::Short => Verdict::Go,
                    Fault::Error => Verdict::Fails,
                };
            }
        }
        Verdict::Go
    }

    /// [`Self::begin`] of a call that does not write: done, or not at all. The last call of a program may be either.
    pub fn pass(&self, call: Call, path: &Path) -> io::Result<()> {
        match self.begin(call, path)? {
            Verdict::Fails => Err(eio()),
            Verdict::Last(_) if self.below(2) == 0 => Err(gone()),
            _ => Ok(()),
        }
    }

    /// After an await: the program may have ended meanwhile.
    pub fn still(&self) -> io::Result<()> {
        if self.is_over.get() { Err(gone()) } else { Ok(()) }
    }

    pub fn below(&self, end: usize) -> usize {
        self.dice.borrow_mut().as_mut().map_or(0, |dice| dice.below(end))
    }

    /// How long a call takes; none where nothing is simulated.
    pub fn delay(&self) -> Option<Duration> {
        let mut dice = self.dice.borrow_mut();
        let dice = dice.as_mut()?;
        let micros = match dice.below(256) {
            0 => 20_000 + dice.below(60_000),
            1..8 => 1_000 + dice.below(4_000),
            _ => 20 + dice.below(130),
        };
        Some(Duration::from_micros(micros as u64))
    }

    /// What is in the file after a write that was the last act.
    pub fn tear(&self, flight: &Flight, end: End) {
        let Flight { file, position, bytes, length, is_direct, has_neighbour } = flight;
        let zeros = if bytes.is_empty() { vec![0; *length] } else { Vec::new() };
        let bytes = if bytes.is_empty() { &zeros } else { bytes };
        let mut file = file.borrow_mut();
        match end {
            End::PowerCut { spoils } if *is_direct => {
                let keeps_order = self.below(2) == 0;
                let first = self.below(bytes.len() / SECTOR + 1);
                for (at, sector) in bytes.chunks(SECTOR).enumerate() {
                    if if keeps_order { at < first } else { self.below(2) == 0 } {
                        file.write_through(position + at * SECTOR, sector);
                    }
                }
                if spoils {
                    // What the disk was about to write when the power went: neither old nor new.
                    let caught = position + self.below(bytes.len() / SECTOR) * SECTOR;
                    file.write_through(caught, &(0..SECTOR).map(|_| self.below(256) as u8).collect::<Vec<_>>());
                    let beside = position + bytes.len();
                    let count = (self.below(8) + 1).min(file.content.size().saturating_sub(beside) / SECTOR);
                    let count = if *has_neighbour { count } else { 0 };
                    let noise: Vec<u8> = (0..count * SECTOR).map(|_| self.below(256) as u8).collect();
                    if count > 0 {
                        file.write_through(beside, &noise);
                    }
                }
            }
            _ => {
                let taken = self.below(bytes.len() + 1);
                let taken = if *is_direct { taken / SECTOR * SECTOR } else { taken };
                if *is_direct {
                    file.write_through(*position, &bytes[..taken]);
                } else {
                    file.write(*position, &bytes[..taken]);
                }
            }
        }
    }
}

/// The error of a disk that cannot.
pub fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}
