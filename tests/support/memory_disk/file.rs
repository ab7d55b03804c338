//! An open file of the disk in memory.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use corelane::runtime::aligned::AlignedBuf;
use corelane::runtime::clock;
use corelane::runtime::disk::DiskFile;

use super::faults::{Call, Flight, Verdict, eio};
use super::tree::FileNode;
use super::{Inner, MemoryDisk, WriteFault};

/// An open file; it stays readable and writable when its name goes.
pub struct MemoryFile {
    disk: MemoryDisk,
    node: FileNode,
    path: PathBuf,
    is_direct: bool,
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let open = &self.disk.0.open;
        open.set(open.get() - 1);
    }
}

/// What is to be written.
#[derive(Clone, Copy)]
enum Data<'a> {
    Bytes(&'a [u8]),
    Zeros(usize),
}

impl Data<'_> {
    fn len(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Zeros(length) => length,
        }
    }

    /// The first so many bytes, if there are as many.
    fn first(self, length: usize) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(&bytes[..length.min(bytes.len())]),
            Self::Zeros(bytes) => Self::Zeros(length.min(bytes)),
        }
    }

    /// What a trace tells of it.
    fn told(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Zeros(_) => &[],
        }
    }
}

fn place(position: u64) -> usize {
    usize::try_from(position).unwrap()
}

impl MemoryFile {
    pub(super) fn new(disk: MemoryDisk, node: FileNode, path: &Path, is_direct: bool) -> Self {
        Self { disk, node, path: path.to_owned(), is_direct }
    }

    fn call(&self) -> Call {
        if self.is_direct { Call::WriteBlocks } else { Call::Write }
    }

    /// A write that is done when this returns.
    fn write(&self, position: u64, data: Data<'_>) -> io::Result<usize> {
        let faults = &self.disk.0.faults;
        let verdict = self.begin(position, data)?;
        match verdict {
            Verdict::Go => self.take(position, data),
            Verdict::Short => self.take(position, data.first(self.part(data.len()))),
            Verdict::Last(end) => {
                faults.tear(&self.flight(position, data), end);
                faults.still().map(|()| 0)
            }
            Verdict::Fails => {
                self.take(position, data.first(self.part(data.len())))?;
                Err(eio())
            }
        }
    }

    fn begin(&self, position: u64, data: Data<'_>) -> io::Result<Verdict> {
        let Inner { faults, watch, .. } = &*self.disk.0;
        let verdict = faults.begin(self.call(), &self.path)?;
        faults.note("write", &self.path, place(position), data.told());
        if self.is_direct {
            watch.wrote(&self.path, place(position));
        }
        Ok(verdict)
    }

    /// Some of so many bytes, in whole sectors for a direct write.
    fn part(&self, length: usize) -> usize {
        let part = self.disk.0.faults.below(length.max(1));
        if self.is_direct { part / 512 * 512 } else { part }
    }

    fn flight(&self, position: u64, data: Data<'_>) -> Flight {
        Flight {
            file: Rc::clone(&self.node),
            position: place(position),
            bytes: data.told().to_vec(),
            length: data.len(),
            is_direct: self.is_direct,
            has_neighbour: self.path.file_stem().is_none_or(|stem| stem != "store"),
        }
    }

    /// A write that takes its time; if the program ends meanwhile, a part of it is done.
    async fn write_later(&self, position: u64, data: Data<'_>) -> io::Result<usize> {
        let faults = &self.disk.0.faults;
        let Some(delay) = faults.delay() else { return self.write(position, data) };
        let verdict = self.begin(position, data)?;
        let slot = {
            let flights = &mut *faults.flights.borrow_mut();
            let slot = flights.iter().position(Option::is_none).unwrap_or(flights.len());
            flights.resize_with(flights.len().max(slot + 1), || None);
            flights[slot] = Some(self.flight(position, data));
            slot
        };
        faults.still()?;
        clock::sleep(delay).await;
        faults.still()?;
        faults.flights.borrow_mut()[slot] = None;
        match verdict {
            Verdict::Go => self.take(position, data),
            Verdict::Short => self.take(position, data.first(self.part(data.len()))),
            Verdict::Fails | Verdict::Last(_) => {
                self.take(position, data.first(self.part(data.len())))?;
                Err(eio())
            }
        }
    }

    /// Takes bytes as far as there is room and no fault was asked for.
    fn take(&self, position: u64, data: Data<'_>) -> io::Result<usize> {
        let inner = &self.disk.0;
        let number = inner.writes.replace(inner.writes.get() + 1);
        let position = place(position);
        if self.is_direct {
            assert!(position.is_multiple_of(4096) && data.len().is_multiple_of(512), "direct write out of line");
        }
        match inner.fault.get() {
            Some((at, WriteFault::Short(taken))) if at == number => Ok(self.store(position, data.first(taken))),
            Some((at, WriteFault::Dead(taken))) if at <= number => {
                if at == number {
                    self.store(position, data.first(taken));
                }
                Err(io::Error::other("the disk is gone"))
            }
            _ => Ok(self.store(position, data.first(self.allowed(position, data.len())))),
        }
    }

    fn allowed(&self, position: usize, length: usize) -> usize {
        let Some(capacity) = self.disk.0.capacity.get() else { return length };
        let has = self.node.borrow().content.size();
        let growth = (position + length).saturating_sub(has);
        if growth == 0 {
            return length;
        }
        let over = (self.disk.total_bytes() + growth as u64).saturating_sub(capacity);
        length - place(over).min(growth).next_multiple_of(4096).min(length)
    }

    fn store(&self, position: usize, data: Data<'_>) -> usize {
        let mut file = self.node.borrow_mut();
        match data {
            Data::Bytes(bytes) if self.is_direct => file.write_through(position, bytes),
            Data::Bytes(bytes) => file.write(position, bytes),
            Data::Zeros(length) => file.write_zeros_through(position, length),
        }
        data.len()
    }

    async fn write_direct(&self, position: u64, data: Data<'_>) -> io::Result<usize> {
        if self.disk.0.faults.delay().is_none() {
            clock::sleep(Duration::from_micros(60)).await;
        }
        while self.disk.0.held.get() {
            clock::sleep(Duration::from_millis(1)).await;
        }
        self.write_later(position, data).await
    }

    fn get(&self, position: u64, into: &mut [u8]) -> usize {
        let count = self.node.borrow().content.read(place(position), into);
        self.disk.0.faults.note("read", &self.path, place(position), &into[..count]);
        count
    }
}

impl DiskFile for MemoryFile {
    fn write_now(&self, position: u64, parts: &[&[u8]]) -> io::Result<usize> {
        match parts {
            [one] => self.write(position, Data::Bytes(one)),
            _ => self.write(position, Data::Bytes(&parts.concat())),
        }
    }

    async fn write_at(&self, position: u64, bytes: Bytes) -> io::Result<usize> {
        self.write_later(position, Data::Bytes(&bytes)).await
    }

    fn read_now(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.disk.0.faults.pass(Call::Read, &self.path)?;
        Ok(self.get(position, into))
    }

    async fn read_at(&self, position: u64, bytes: usize) -> io::Result<Bytes> {
        if self.is_direct {
            assert!(position.is_multiple_of(4096) && bytes.is_multiple_of(4096), "direct read out of line");
        }
        self.disk.0.faults.pass(Call::Read, &self.path)?;
        self.disk.device().await?;
        let read = self.node.borrow().content.bytes(place(position), bytes);
        self.disk.0.faults.note("read", &self.path, place(position), &read);
        Ok(read)
    }

    fn write_blocks_now(&self, position: u64, blocks: &[u8]) -> io::Result<usize> {
        self.write(position, Data::Bytes(blocks))
    }

    async fn write_blocks(&self, position: u64, blocks: AlignedBuf) -> io::Result<usize> {
        self.write_direct(position, Data::Bytes(blocks.bytes())).await
    }

    async fn write_zeros(&self, position: u64, bytes: usize) -> io::Result<usize> {
        assert!(self.is_direct, "zeros are written past the page cache");
        self.write_direct(position, Data::Zeros(bytes)).await
    }

    async fn sync_data(&self) -> io::Result<()> {
        let inner = &self.disk.0;
        let takes = inner.sync_takes.get();
        if !takes.is_zero() {
            clock::sleep(takes).await;
        }
        let is_bad = inner.bad_sync.borrow_mut().take_if(|ending| self.path.to_string_lossy().ends_with(&**ending));
        if is_bad.is_some() {
            return Err(io::Error::other("the flush failed"));
        }
        let verdict = inner.faults.begin(Call::SyncData, &self.path)?;
        if verdict == Verdict::Fails {
            self.node.borrow_mut().lose();
            inner.has_lost.set(true);
            return Err(eio());
        }
        let count = self.node.borrow().count();
        self.disk.device().await?;
        self.node.borrow_mut().flush(count);
        Ok(())
    }

    async fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.disk.0.faults.pass(Call::Truncate, &self.path)?;
        self.disk.device().await?;
        self.node.borrow_mut().truncate(place(bytes));
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        self.disk.0.faults.still()?;
        Ok(self.node.borrow().content.size() as u64)
    }
}
