//! Messages of calls on a byte stream: how [`Command`], [`Notice`] and [`Outcome`] are framed.
//!
//! A message is the length of its JSON head (`u32`, big-endian), the head, the bytes of the files that the
//! head lists, in that order, and then the end of the stream in that direction. Writing the end is the
//! caller's ([`AsyncWriteExt::shutdown`]), so that it may go on to read the answer. Deadlines are the
//! caller's too. Nothing here knows what a message means.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use yonder_protocol::call::{
    Command, FileHead, HEAD_BYTES_MAX, InvalidHead, Notice, Outcome, check_files, check_head_length,
};

/// Room taken at once for bytes that a peer announced: an announcement alone costs no more than this.
const STEP_BYTES: usize = 256 * 1024;

/// A head that may list files.
pub trait Head {
    /// The files whose bytes follow, in order.
    fn files(&self) -> &[FileHead];
}

impl Head for Command {
    fn files(&self) -> &[FileHead] {
        match self {
            Self::Operation { files, .. } => files,
            _ => &[],
        }
    }
}

impl Head for Notice {
    fn files(&self) -> &[FileHead] {
        &[]
    }
}

impl Head for Outcome {
    fn files(&self) -> &[FileHead] {
        match self {
            Self::Success { files, .. } => files,
            Self::Failure { .. } => &[],
        }
    }
}

/// Why a message could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The stream failed; its own error tells why.
    #[error("the call's stream failed: {0}")]
    Io(#[from] io::Error),
    /// The stream ended before the message was complete.
    #[error("the call's stream ended within a message")]
    Truncated,
    /// Bytes follow where the message should end.
    #[error("the other half sent more than one message on a call's stream")]
    Trailing,
    /// The head or the files exceed their bounds.
    #[error(transparent)]
    Bounds(#[from] InvalidHead),
    /// The head is not the JSON that was expected.
    #[error(
        "the other half sent a malformed message at {0}; update both halves to the same version"
    )]
    Malformed(serde_path_to_error::Error<serde_json::Error>),
    /// The head could not be put into JSON.
    #[error("a message could not be written as JSON: {0}")]
    Unwritable(serde_json::Error),
    /// The head lists other files than were given: a fault of this half.
    #[error("the files given do not fit those that the head lists")]
    FilesDiffer,
}

/// Writes one message; `files` are the bytes of the files that `head` lists.
///
/// Not cancel safe: a dropped future leaves half a message behind, so reset the stream then.
///
/// # Errors
/// If the message exceeds the bounds of [`yonder_protocol::call`], before anything is written, or the stream fails.
pub async fn write_message<W, T>(
    stream: &mut W,
    head: &T,
    files: &[Bytes],
) -> Result<(), MessageError>
where
    W: AsyncWrite + Unpin + ?Sized,
    T: Head + Serialize,
{
    check_files(head.files())?;
    let fits = head.files().len() == files.len()
        && head
            .files()
            .iter()
            .zip(files)
            .all(|(head, bytes)| head.bytes == bytes.len() as u64);
    if !fits {
        return Err(MessageError::FilesDiffer);
    }
    let mut framed = vec![0; size_of::<u32>()];
    serde_json::to_writer(&mut framed, head).map_err(MessageError::Unwritable)?;
    let length = framed.len() - size_of::<u32>();
    let length = u32::try_from(length)
        .ok()
        .filter(|length| check_head_length(*length).is_ok())
        .ok_or(InvalidHead::TooLong(length))?;
    framed[..size_of::<u32>()].copy_from_slice(&length.to_be_bytes());
    stream.write_all(&framed).await?;
    for file in files {
        stream.write_all(file).await?;
    }
    stream.flush().await?;
    Ok(())
}

/// Reads one message up to the end of the stream in this direction, with the bytes of its files.
///
/// Not cancel safe: a dropped future loses what it had read.
///
/// # Errors
/// If the message exceeds its bounds, is malformed, incomplete or followed by more, or the stream fails.
pub async fn read_message<R, T>(stream: &mut R) -> Result<(T, Vec<Bytes>), MessageError>
where
    R: AsyncRead + Unpin + ?Sized,
    T: Head + DeserializeOwned,
{
    let mut length = [0; size_of::<u32>()];
    stream.read_exact(&mut length).await.map_err(truncated)?;
    let length = check_head_length(u32::from_be_bytes(length))?;
    debug_assert!(length <= HEAD_BYTES_MAX, "checked above");
    let head = read_bytes(stream, length).await?;
    let head: T =
        serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(&head))
            .map_err(MessageError::Malformed)?;
    check_files(head.files())?;
    let mut files = Vec::with_capacity(head.files().len());
    for file in head.files() {
        let length =
            usize::try_from(file.bytes).map_err(|_| MessageError::Bounds(InvalidHead::Files))?;
        files.push(read_bytes(stream, length).await?);
    }
    if stream.read(&mut [0]).await? != 0 {
        return Err(MessageError::Trailing);
    }
    Ok((head, files))
}

/// Reads exactly `length` bytes, taking memory only as they arrive.
async fn read_bytes<R>(stream: &mut R, length: usize) -> Result<Bytes, MessageError>
where
    R: AsyncRead + Unpin + ?Sized,
{
    let mut bytes = BytesMut::new();
    while bytes.len() < length {
        let missing = length - bytes.len();
        if bytes.capacity() == bytes.len() {
            bytes.reserve(missing.min(STEP_BYTES.max(bytes.len())));
        }
        if stream.read_buf(&mut (&mut bytes).limit(missing)).await? == 0 {
            return Err(MessageError::Truncated);
        }
    }
    Ok(bytes.freeze())
}

/// The end of the stream inside a message is the other half's fault, not the stream's.
fn truncated(error: io::Error) -> MessageError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        MessageError::Truncated
    } else {
        MessageError::Io(error)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use yonder_protocol::limits;

    use super::*;

    fn outcome(files: &[Bytes]) -> Outcome {
        Outcome::Success {
            value: json!({"a": [1, "ü"]}),
            files: files
                .iter()
                .map(|bytes| FileHead {
                    id: None,
                    name: "a.png".into(),
                    mime: "image/png".into(),
                    bytes: bytes.len() as u64,
                })
                .collect(),
        }
    }

    async fn encoded(head: &Outcome, files: &[Bytes]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_message(&mut bytes, head, files).await.unwrap();
        bytes
    }

    async fn decoded(mut bytes: &[u8]) -> Result<(Outcome, Vec<Bytes>), MessageError> {
        read_message(&mut bytes).await
    }

    #[tokio::test]
    async fn a_message_with_files_round_trips() {
        let files = [
            Bytes::from_static(b"one"),
            Bytes::new(),
            Bytes::from(vec![7; 3 * STEP_BYTES + 1]),
        ];
        let bytes = encoded(&outcome(&files), &files).await;
        let (head, read) = decoded(&bytes).await.unwrap();
        assert_eq!(
            serde_json::to_value(&head).unwrap(),
            serde_json::to_value(outcome(&files)).unwrap()
        );
        assert_eq!(read, files);
    }

    #[tokio::test]
    async fn bounds_are_checked_before_bytes_are_taken() {
        let length = u32::try_from(HEAD_BYTES_MAX + 1).unwrap();
        assert!(matches!(
            decoded(&length.to_be_bytes()).await,
            Err(MessageError::Bounds(InvalidHead::TooLong(_)))
        ));
        let head = json!({"type": "success", "value": null, "files": [
            {"name": "a", "mime": "b", "bytes": limits::FILE_TRANSFER_BYTES + 1}
        ]})
        .to_string();
        let mut bytes = u32::try_from(head.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend(head.bytes());
        assert!(matches!(
            decoded(&bytes).await,
            Err(MessageError::Bounds(InvalidHead::Files))
        ));
    }

    #[tokio::test]
    async fn what_does_not_fit_is_named() {
        let bytes = encoded(&outcome(&[]), &[]).await;
        assert!(matches!(
            decoded(&bytes[..bytes.len() - 1]).await,
            Err(MessageError::Truncated)
        ));
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(matches!(
            decoded(&longer).await,
            Err(MessageError::Trailing)
        ));
        let mut other: &[u8] = &bytes;
        assert!(matches!(
            read_message::<_, Notice>(&mut other).await,
            Err(MessageError::Malformed(_))
        ));
        let mut sink = Vec::new();
        let error = write_message(&mut sink, &outcome(&[Bytes::from_static(b"x")]), &[]).await;
        assert!(matches!(error, Err(MessageError::FilesDiffer)));
        assert!(sink.is_empty());
    }

    proptest! {
        #[test]
        fn mangled_messages_never_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200), honest in any::<bool>()
        ) {
            if honest && bytes.len() >= 4 {
                let length = u32::try_from(bytes.len() - 4).unwrap();
                bytes[..4].copy_from_slice(&length.to_be_bytes());
            }
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _ = runtime.block_on(decoded(&bytes));
        }
    }
}
