//! A disk that only reads: what checks a stopped broker's files shares every reader with the broker, and can change nothing.
//!
//! Every call blocks, so it is for threads without an executor, any number of them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::{Bytes, BytesMut};

use super::aligned::AlignedBuf;
use super::disk::{Access, Create, Disk, DiskFile, Entry, Space};
use super::real_disk::RealDisk;

/// The real file system, to be looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOnlyDisk;

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "nothing is written here"))
}

impl Disk for ReadOnlyDisk {
    type File = ReadOnlyFile;

    fn open(&self, path: &Path, _access: Access, create: Create) -> io::Result<ReadOnlyFile> {
        if create == Create::Truncate {
            return refused();
        }
        File::open(path).map(ReadOnlyFile)
    }

    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        refused()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        RealDisk.list(path)
    }

    fn file_bytes(&self, path: &Path) -> io::Result<u64> {
        RealDisk.file_bytes(path)
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        refused()
    }

    async fn remove_file(&self, _path: &Path) -> io::Result<()> {
        refused()
    }

    async fn remove_dir_all(&self, _path: &Path) -> io::Result<()> {
        refused()
    }

    async fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        refused()
    }

    async fn sync_fs(&self, _path: &Path) -> io::Result<()> {
        refused()
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        RealDisk.space(path)
    }
}

/// A file that is only read.
#[derive(Debug)]
pub struct ReadOnlyFile(File);

impl DiskFile for ReadOnlyFile {
    fn write_now(&self, _position: u64, _parts: &[&[u8]]) -> io::Result<usize> {
        refused()
    }

    async fn write_at(&self, _position: u64, _bytes: Bytes) -> io::Result<usize> {
        refused()
    }

    fn read_now(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read_at(into, position) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    async fn read_at(&self, position: u64, bytes: usize) -> io::Result<Bytes> {
        // What a damaged file claims to hold must not be asked for in memory.
        let there = self.bytes()?.saturating_sub(position);
        let wanted = usize::try_from(there).unwrap_or(usize::MAX).min(bytes);
        let mut content = BytesMut::zeroed(wanted);
        let mut read = 0;
        while read < wanted {
            match self.read_now(position + read as u64, &mut content[read..])? {
                0 => break,
                more => read += more,
            }
        }
        content.truncate(read);
        Ok(content.freeze())
    }

    fn write_blocks_now(&self, _position: u64, _blocks: &[u8]) -> io::Result<usize> {
        refused()
    }

    async fn write_blocks(&self, _position: u64, _blocks: AlignedBuf) -> io::Result<usize> {
        refused()
    }

    async fn sync_data(&self) -> io::Result<()> {
        refused()
    }

    async fn truncate(&self, _bytes: u64) -> io::Result<()> {
        refused()
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::executors::block_on;
    use std::fs;

    #[test]
    fn it_reads_and_changes_nothing() {
        let path = std::env::temp_dir().join(format!("corelane-read-only-{}", std::process::id()));
        fs::write(&path, b"0123456789").unwrap();
        let disk = ReadOnlyDisk;
        let file = disk.open(&path, Access::DirectSync, Create::Never).unwrap();
        assert_eq!(block_on(file.read_at(8, usize::MAX)).unwrap(), &b"89"[..]);
        assert_eq!(block_on(file.read_at(20, 5)).unwrap(), &b""[..]);
        assert!(block_on(file.write_at(0, Bytes::from_static(b"x"))).is_err());
        assert!(disk.open(&path, Access::Buffered, Create::Truncate).is_err());
        assert!(block_on(disk.remove_file(&path)).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"0123456789");
        fs::remove_file(&path).unwrap();
    }
}
