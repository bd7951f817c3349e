//! Record files, written by a thread of their own so that a slow disk delays no packet.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Arc;
use std::thread::JoinHandle;

use tm_wire::Instant;

use crate::platform::files::private;
use crate::{process, IoError};

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
    queue: Option<SyncSender<Vec<u8>>>,
    /// Of the one that was created; those that share the file have none.
    writer: Option<JoinHandle<std::io::Result<()>>>,
    /// The writer has ended: on an error of the disk, as long as there is a queue.
    over: Arc<AtomicBool>,
}

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
        start: Instant,
    ) -> Result<Self, IoError> {
        let Some(path) = path else {
            return Ok(Self {
                chunk: Vec::new(),
                queue: None,
                writer: None,
                over: Arc::default(),
            });
        };
        let place = || format!("records is {}", path.display());
        let mut file = private(OpenOptions::new().write(true).create(true).truncate(true))
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
        let (queue, chunks) = sync_channel::<Vec<u8>>(CHUNKS);
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let writer = process::spawn("records", move || {
            let written = write(file, &chunks, record_bytes);
            ended.store(true, Ordering::Release);
            written
        })?;
        Ok(Self {
            chunk: Vec::with_capacity(CHUNK_BYTES),
            queue: Some(queue),
            writer: Some(writer),
            over,
        })
    }

    /// The same file for another thread, which must finish before the one that was created does.
    #[must_use]
    pub fn share(&self) -> Self {
        Self {
            chunk: Vec::new(),
            queue: self.queue.clone(),
            writer: None,
            over: Arc::clone(&self.over),
        }
    }

    /// Adds a record.
    pub fn push(&mut self, record: &[u8]) {
        if self.queue.is_none() {
            return;
        }
        self.chunk.extend_from_slice(record);
        if self.chunk.len() + record.len() > CHUNK_BYTES {
            self.flush();
        }
    }

    /// Whether the disk took no more: nothing that follows is kept, and [`Records::finish`] says why.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.queue.is_some() && self.over.load(Ordering::Acquire)
    }

    /// Writes what is left and the number of records into the header.
    pub fn finish(mut self) -> Result<(), IoError> {
        self.flush();
        self.queue = None;
        let Some(writer) = self.writer.take() else {
            return Ok(());
        };
        let written = writer.join();
        written
            .unwrap_or_else(|_| Err(std::io::Error::other("writer died")))
            .map_err(|error| IoError::new("writing the record file", error))
    }

    fn flush(&mut self) {
        if self.chunk.is_empty() {
            return;
        }
        let full = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
        if let Some(queue) = &self.queue {
            // The writer ends early only on an error of the disk, which finish() reports.
            let _ = queue.send(full);
        }
    }
}

/// Writes chunks until nobody has more, and the number of records into the header.
fn write(mut file: File, chunks: &Receiver<Vec<u8>>, record_bytes: usize) -> std::io::Result<()> {
    let mut bytes = 0;
    for chunk in chunks {
        file.write_all(&chunk)?;
        bytes += chunk.len() as u64;
    }
    file.seek(SeekFrom::Start(16))?;
    file.write_all(&(bytes / record_bytes as u64).to_le_bytes())?;
    file.sync_data()
}
