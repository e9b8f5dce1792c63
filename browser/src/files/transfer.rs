//! Bringing a recorded file to the caller.

use std::fs::File;
use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::task::spawn_blocking;
use yonder_protocol::limits::FILE_TRANSFER_BYTES;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::types::FileKind;

use super::Stored;
use crate::execute::CapturedFile;

/// The content of `stored`, compressed where that is worth it.
///
/// # Errors
/// [`ErrorCode::FileFailed`] if it is too large to be transferred, or is not readable any more.
///
/// # Cancel safety
/// Dropping the future ends the waiting; the reading, which is bounded, goes on to its end.
pub(crate) async fn get(stored: Stored) -> Result<CapturedFile, OperationError> {
    let entry = stored.entry.clone();
    let compress = matches!(entry.kind, FileKind::HeapSnapshot);
    let read = spawn_blocking(move || read(&stored, compress)).await;
    let data = match read {
        Ok(Ok(Some(data))) => data,
        Ok(Ok(None)) => {
            return Err(OperationError::new(
                ErrorCode::FileFailed,
                format!(
                    "{} has {} bytes, and more than {FILE_TRANSFER_BYTES} {} are not transferred; ask about it where it is, with heap.summary, heap.query, heap.object and heap.compare",
                    entry.name,
                    entry.bytes,
                    if compress { "compressed" } else { "bytes" },
                ),
            ));
        }
        Ok(Err(error)) => {
            return Err(OperationError::new(
                ErrorCode::FileFailed,
                format!(
                    "{} is not readable any more: {error}; record it again",
                    entry.name
                ),
            ));
        }
        Err(error) => {
            return Err(OperationError::new(
                ErrorCode::OperationFailed,
                format!("reading {} ended abnormally: {error}", entry.name),
            ));
        }
    };
    let (name, mime) = if compress {
        (format!("{}.gz", entry.name), "application/gzip".to_owned())
    } else {
        (entry.name, entry.mime)
    };
    Ok(CapturedFile {
        id: entry.id.to_string(),
        name,
        mime,
        data: Bytes::from(data),
    })
}

/// The file's bytes; `None` if they are too many.
fn read(stored: &Stored, compress: bool) -> io::Result<Option<Vec<u8>>> {
    let mut file = File::open(&stored.path)?;
    if !compress {
        let mut data = Vec::new();
        file.take(FILE_TRANSFER_BYTES as u64 + 1)
            .read_to_end(&mut data)?;
        return Ok((data.len() <= FILE_TRANSFER_BYTES).then_some(data));
    }
    let mut encoder = GzEncoder::new(Capped(Vec::new()), Compression::fast());
    match io::copy(&mut file, &mut encoder).and_then(|_| encoder.finish()) {
        Ok(Capped(data)) => Ok(Some(data)),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(None),
        Err(error) => Err(error),
    }
}

/// A buffer that takes no more than may be transferred.
struct Capped(Vec<u8>);

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > FILE_TRANSFER_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
