//! Record files, written by a thread of their own so that a slow disk delays no packet.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{sync_channel, SyncSender};
use std::thread::JoinHandle;

use tm_wire::Nanos;

use crate::IoError;

/// Which records a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `SendRecord`.
    Send = 1,
    /// `ReflectRecord`.
    Reflect = 2,
}

/// A record file that is being written, or nothing where no file was asked for.
pub struct Records {
    chunk: Vec<u8>,
    count: u64,
    writer: Option<Writer>,
}

type Writer = (SyncSender<Vec<u8>>, JoinHandle<std::io::Result<File>>);

const HEADER_BYTES: usize = 64;
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks on their way to the disk; memory is bounded by this times [`CHUNK_BYTES`].
const CHUNKS: usize = 64;

impl Records {
    /// Makes the file, in place of one that is there; `None` gives a sink that keeps nothing.
    pub fn create(
        path: Option<&Path>,
        kind: Kind,
        record_bytes: usize,
        start: Nanos,
    ) -> Result<Self, IoError> {
        let Some(path) = path else {
            return Ok(Self {
                chunk: Vec::new(),
                count: 0,
                writer: None,
            });
        };
        let place = || format!("records is {}", path.display());
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .map_err(|error| IoError::new(place(), error))?;
        let mut header = [0; HEADER_BYTES];
        header[0..8].copy_from_slice(b"TMREC\0\0\0");
        header[8..10].copy_from_slice(&1_u16.to_le_bytes());
        header[10..12].copy_from_slice(&(kind as u16).to_le_bytes());
        let size = u32::try_from(record_bytes).unwrap_or(u32::MAX);
        header[12..16].copy_from_slice(&size.to_le_bytes());
        header[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        header[24..32].copy_from_slice(&start.0.to_le_bytes());
        file.write_all(&header)
            .map_err(|error| IoError::new(place(), error))?;
        let (sender, receiver) = sync_channel::<Vec<u8>>(CHUNKS);
        let thread = std::thread::spawn(move || {
            for chunk in receiver {
                file.write_all(&chunk)?;
            }
            Ok(file)
        });
        let chunk = Vec::with_capacity(CHUNK_BYTES);
        Ok(Self {
            chunk,
            count: 0,
            writer: Some((sender, thread)),
        })
    }

    /// Adds a record.
    pub fn push(&mut self, record: &[u8]) {
        if self.writer.is_none() {
            return;
        }
        self.chunk.extend_from_slice(record);
        self.count += 1;
        if self.chunk.len() + record.len() > CHUNK_BYTES {
            self.flush();
        }
    }

    /// Writes what is left and the number of records into the header.
    pub fn finish(mut self) -> Result<(), IoError> {
        self.flush();
        let Some((sender, thread)) = self.writer.take() else {
            return Ok(());
        };
        drop(sender);
        let written = thread
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("writer died")));
        let count = self.count;
        written
            .and_then(|mut file| {
                file.seek(SeekFrom::Start(16))?;
                file.write_all(&count.to_le_bytes())?;
                file.sync_data()
            })
            .map_err(|error| IoError::new("writing the record file", error))
    }

    fn flush(&mut self) {
        if self.chunk.is_empty() {
            return;
        }
        let full = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
        if let Some((sender, _)) = &self.writer {
            // The writer ends early only on an error of the disk, which finish() reports.
            let _ = sender.send(full);
        }
    }
}
