//! The target: what the tunnels lead to. It runs as a process of its own and costs little, so that the figures are those of
//! the way to it.
//!
//! A client says in [`HEAD_BYTES`] what it wants; see [`Wish`]. A second port speaks HTTP and gives every request the same 1 KiB.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};

use anyhow::Context as _;
use clap::Args;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Length of what a client says first: the wish and a number of bytes.
pub(crate) const HEAD_BYTES: usize = 16;

/// Bulk is written and read in pieces of this size: large enough that this process is never what is measured.
pub(crate) const PIECE_BYTES: usize = 256 * 1024;

/// Largest answer to a ping; echoes are read in pieces of this size.
const ECHO_BYTES: usize = 4096;

/// Body of every HTTP answer.
pub(crate) const BODY_BYTES: usize = 1024;

/// Longest request head that the HTTP port takes.
const REQUEST_BYTES: usize = 8192;

/// What a client wants of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wish {
    /// One byte at once, then everything back that comes.
    Echo,
    /// That many bytes, or without end where it is 0.
    Send(u64),
    /// Take everything up to the end, and answer with the count in eight bytes.
    Receive,
}

impl Wish {
    /// What the client sends first.
    pub(crate) fn encode(self) -> [u8; HEAD_BYTES] {
        let (kind, count) = match self {
            Self::Echo => (b'E', 0),
            Self::Send(count) => (b'S', count),
            Self::Receive => (b'R', 0),
        };
        let mut head = [0; HEAD_BYTES];
        head[0] = kind;
        head[HEAD_BYTES - 8..].copy_from_slice(&u64::to_be_bytes(count));
        head
    }

    fn decode(head: [u8; HEAD_BYTES]) -> Option<Self> {
        let [kind, _, _, _, _, _, _, _, count @ ..] = head;
        match kind {
            b'E' => Some(Self::Echo),
            b'S' => Some(Self::Send(u64::from_be_bytes(count))),
            b'R' => Some(Self::Receive),
            _ => None,
        }
    }
}

/// Where a target listens; how it says so to who started it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ports {
    /// Speaks [`Wish`].
    pub(crate) wishes: SocketAddr,
    /// Speaks HTTP/1.1.
    pub(crate) http: SocketAddr,
}

impl Ports {
    fn line(self) -> String {
        format!("{} {}", self.wishes, self.http)
    }

    /// Reads the first line of a target's standard output.
    pub(crate) fn parse(line: &str) -> anyhow::Result<Self> {
        let (wishes, http) = line
            .split_once(' ')
            .with_context(|| format!("the target said {line:?}"))?;
        Ok(Self {
            wishes: wishes.parse()?,
            http: http.parse()?,
        })
    }
}

/// What a target process is told.
#[derive(Args, Clone, Debug)]
pub(crate) struct TargetArguments {
    /// Where to listen.
    #[arg(long)]
    address: IpAddr,
    /// Congestion control of what is sent, if not the system's own choice.
    #[arg(long)]
    congestion: Option<String>,
}

/// Runs until killed.
pub(crate) fn run(arguments: &TargetArguments) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?
        .block_on(serve(arguments))
}

async fn serve(arguments: &TargetArguments) -> anyhow::Result<()> {
    let wishes = listen(arguments)?;
    let http = listen(arguments)?;
    let ports = Ports {
        wishes: wishes.local_addr()?,
        http: http.local_addr()?,
    };
    println!("{}", ports.line());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = wishes.accept() => {
                let (socket, _) = accepted?;
                connections.spawn(async move {
                    // Clients go away in the midst of everything; that is what some of them are for.
                    let _ = answer_wish(socket).await;
                });
            }
            accepted = http.accept() => {
                let (socket, _) = accepted?;
                connections.spawn(async move {
                    let _ = answer_http(socket).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// A listener whose queue holds the bursts that are measured.
fn listen(arguments: &TargetArguments) -> anyhow::Result<TcpListener> {
    /// More than any burst of ours.
    const BACKLOG: i32 = 4096;
    let address = SocketAddr::new(arguments.address, 0);
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM,
        None,
    )?;
    socket.set_nonblocking(true)?;
    if let Some(congestion) = &arguments.congestion {
        // Connections inherit it.
        socket
            .set_tcp_congestion(congestion.as_bytes())
            .with_context(|| format!("could not use the congestion control {congestion}"))?;
    }
    socket
        .bind(&address.into())
        .with_context(|| format!("could not listen on {address}"))?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into())?)
}

async fn answer_wish(mut socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut head = [0; HEAD_BYTES];
    socket.read_exact(&mut head).await?;
    match Wish::decode(head) {
        Some(Wish::Echo) => echo(socket).await,
        Some(Wish::Send(count)) => in_thread(socket, move |socket| send(socket, count)),
        Some(Wish::Receive) => in_thread(socket, receive),
        None => Ok(()),
    }
}

async fn echo(mut socket: TcpStream) -> io::Result<()> {
    socket.write_all(&[1]).await?;
    // Taken once something is there: thousands of these connections are idle.
    loop {
        socket.readable().await?;
        let mut buffer = [0; ECHO_BYTES];
        let count = match socket.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        if socket.try_write(&buffer[..count]).ok() != Some(count) {
            return Err(io::Error::other("the client reads no echoes"));
        }
    }
}

/// Bulk goes on in a thread of its own with blocking calls, the cheapest there are.
fn in_thread(
    socket: TcpStream,
    work: impl FnOnce(std::net::TcpStream) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let socket = socket.into_std()?;
    socket.set_nonblocking(false)?;
    std::thread::spawn(move || work(socket));
    Ok(())
}

fn send(mut socket: std::net::TcpStream, count: u64) -> io::Result<()> {
    let piece = vec![0x5a; PIECE_BYTES];
    let mut left = if count == 0 { u64::MAX } else { count };
    while left > 0 {
        let length = usize::try_from(left).map_or(piece.len(), |left| left.min(piece.len()));
        socket.write_all(&piece[..length])?;
        left -= length as u64;
    }
    Ok(())
}

fn receive(mut socket: std::net::TcpStream) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut total = 0_u64;
    loop {
        let count = socket.read(&mut piece)?;
        if count == 0 {
            return socket.write_all(&total.to_be_bytes());
        }
        total += count as u64;
    }
}

async fn answer_http(mut socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {BODY_BYTES}\r\n\r\n"
    )
    .into_bytes();
    answer.resize(answer.len() + BODY_BYTES, b'x');
    let mut request = Vec::with_capacity(REQUEST_BYTES);
    loop {
        if socket.read_buf(&mut request).await? == 0 || request.len() >= REQUEST_BYTES {
            return Ok(());
        }
        // Clients of ours send one request at a time, and GET has no body.
        if request.ends_with(b"\r\n\r\n") {
            request.clear();
            socket.write_all(&answer).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_survive_the_wire() {
        for wish in [
            Wish::Echo,
            Wish::Send(0),
            Wish::Send(u64::MAX),
            Wish::Receive,
        ] {
            assert_eq!(Wish::decode(wish.encode()), Some(wish));
        }
        assert_eq!(Wish::decode([0; HEAD_BYTES]), None);
    }

    #[test]
    fn ports_survive_the_line() {
        let ports = Ports {
            wishes: "127.0.0.1:1".parse().unwrap(),
            http: "[::1]:2".parse().unwrap(),
        };
        assert_eq!(Ports::parse(&ports.line()).unwrap(), ports);
    }
}
