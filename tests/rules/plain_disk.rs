//! A disk of plain system calls on a temporary folder, and a runner for futures that never wait: enough for the files of
//! one partition. Faults can be planted: a write that is cut short.

use std::cell::Cell;
use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use corelane::runtime::aligned::AlignedBuf;
use corelane::runtime::disk::{Access, Create, Disk, DiskFile, Entry, Space};

/// Runs a future that only does plain system calls.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a plain disk never waits"),
    }
}

/// A folder that goes away with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("corelane-rules-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn shared(&self) -> Rc<Path> {
        Rc::from(self.0.as_path())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[derive(Clone, Default)]
pub struct PlainDisk {
    /// The next write takes only so many bytes.
    pub cut_next_write: Rc<Cell<Option<usize>>>,
}

pub struct PlainFile {
    file: fs::File,
    cut_next_write: Rc<Cell<Option<usize>>>,
}

impl Disk for PlainDisk {
    type File = PlainFile;

    fn open(&self, path: &Path, _: Access, create: Create) -> io::Result<PlainFile> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(create != Create::Never).truncate(create == Create::Truncate);
        Ok(PlainFile { file: options.open(path)?, cut_next_write: Rc::clone(&self.cut_next_write) })
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            let name = entry.file_name().into_string().unwrap();
            entries.push(Entry { name, is_dir: meta.is_dir(), bytes: meta.len() });
        }
        entries.sort();
        Ok(entries)
    }

    fn file_bytes(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    async fn remove_file(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    async fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    async fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    async fn sync_fs(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn space(&self, _: &Path) -> io::Result<Space> {
        Ok(Space { total_bytes: 1 << 40, free_bytes: 1 << 40 })
    }
}

impl DiskFile for PlainFile {
    fn write_now(&self, position: u64, parts: &[&[u8]]) -> io::Result<usize> {
        let bytes = parts.concat();
        let taken = self.cut_next_write.take().unwrap_or(bytes.len()).min(bytes.len());
        self.file.write_all_at(&bytes[..taken], position)?;
        Ok(taken)
    }

    async fn write_at(&self, position: u64, bytes: Bytes) -> io::Result<usize> {
        self.write_now(position, &[&bytes])
    }

    fn read_now(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < into.len() {
            match self.file.read_at(&mut into[read..], position + read as u64)? {
                0 => break,
                bytes => read += bytes,
            }
        }
        Ok(read)
    }

    async fn read_at(&self, position: u64, bytes: usize) -> io::Result<Bytes> {
        let left = self.bytes()?.saturating_sub(position);
        let mut into = vec![0; bytes.min(left as usize)];
        let read = self.read_now(position, &mut into)?;
        into.truncate(read);
        Ok(into.into())
    }

    fn write_blocks_now(&self, position: u64, blocks: &[u8]) -> io::Result<usize> {
        self.write_now(position, &[blocks])
    }

    async fn write_blocks(&self, position: u64, blocks: AlignedBuf) -> io::Result<usize> {
        self.write_now(position, &[blocks.bytes()])
    }

    async fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    async fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}
