//! Standard input and output without a thread in between, where the system allows it: they are pipes or sockets when `sshd`
//! starts us.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// Standard input.
pub(super) type Input = Box<dyn AsyncRead + Send + Unpin>;

/// Standard output.
pub(super) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Standard input, of which nothing may have been read yet.
pub(super) fn input() -> io::Result<Input> {
    let end = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(match End::of(end)? {
        End::Pipe(end) => Box::new(pipe::Receiver::from_owned_fd(end)?),
        End::Socket(socket) => Box::new(socket),
        End::Other => Box::new(tokio::io::stdin()),
    })
}

/// Standard output, to which nothing may have been written yet.
pub(super) fn output() -> io::Result<Output> {
    let end = io::stdout().as_fd().try_clone_to_owned()?;
    Ok(match End::of(end)? {
        End::Pipe(end) => Box::new(pipe::Sender::from_owned_fd(end)?),
        End::Socket(socket) => Box::new(socket),
        End::Other => Box::new(tokio::io::stdout()),
    })
}

/// What an end is.
enum End {
    Pipe(OwnedFd),
    Socket(UnixStream),
    /// A terminal or a file.
    Other,
}

impl End {
    fn of(end: OwnedFd) -> io::Result<Self> {
        let file = File::from(end);
        let kind = file.metadata()?.file_type();
        let end = OwnedFd::from(file);
        if kind.is_fifo() {
            Ok(Self::Pipe(end))
        } else if kind.is_socket() {
            let socket = std::os::unix::net::UnixStream::from(end);
            socket.set_nonblocking(true)?;
            UnixStream::from_std(socket).map(Self::Socket)
        } else {
            Ok(Self::Other)
        }
    }
}
