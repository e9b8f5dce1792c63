//! Ways to a target: straight, by `ssh -D`, or through both halves. A load connects through one and need not know which.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::process::{cpu_seconds, own_cpu_seconds};
use crate::target::Wish;

/// A read or write of a load that takes longer has met a hang, which is an error and not a figure.
pub(crate) const IO_LIMIT: Duration = Duration::from_secs(30);

/// One way to a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// Name in tables and JSON.
    pub(crate) name: &'static str,
    /// Where a load connects to.
    pub(crate) entry: SocketAddr,
    /// The target to ask for in SOCKS 5, where the entry wants to be asked.
    pub(crate) socks: Option<SocketAddr>,
    /// The processes between load and target, client first. None for the direct way.
    pub(crate) between: Option<[u32; 2]>,
    /// The target's process.
    pub(crate) target: u32,
}

impl Way {
    /// A connection to the target that has sent its wish; what the target answers is still to be read.
    pub(crate) fn connect(&self, wish: Wish) -> io::Result<TcpStream> {
        let mut socket = TcpStream::connect_timeout(&self.entry, IO_LIMIT)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(IO_LIMIT))?;
        socket.set_write_timeout(Some(IO_LIMIT))?;
        if let Some(target) = self.socks {
            socket.write_all(&SOCKS_GREETING)?;
            let mut answer = [0; 2];
            socket.read_exact(&mut answer)?;
            socket.write_all(&socks_request(target)?)?;
            let mut answer = [0; SOCKS_ANSWER_BYTES];
            socket.read_exact(&mut answer)?;
            check_socks(answer)?;
        }
        socket.write_all(&wish.encode())?;
        Ok(socket)
    }

    /// CPU seconds that were used since the start.
    pub(crate) fn cpu(&self) -> anyhow::Result<Cpu> {
        let [client, server] = match self.between {
            Some([client, server]) => [cpu_seconds(client)?, cpu_seconds(server)?],
            None => [0.0; 2],
        };
        // Not with the descendants of this process, which are all the others.
        let ends = own_cpu_seconds() + cpu_seconds(self.target)?;
        Ok(Cpu {
            client,
            server,
            ends,
        })
    }
}

/// CPU seconds, user and kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    /// The client's side of what is between the ends.
    pub(crate) client: f64,
    /// The server's side of it.
    pub(crate) server: f64,
    /// Load and target: what remains with nothing in between.
    pub(crate) ends: f64,
}

/// Version 5, one method: no authentication.
const SOCKS_GREETING: [u8; 3] = [5, 1, 0];

/// An answer with an IPv4 address, the only kind that OpenSSH gives.
const SOCKS_ANSWER_BYTES: usize = 10;

/// A SOCKS 5 CONNECT to an IPv4 address.
fn socks_request(target: SocketAddr) -> io::Result<[u8; 10]> {
    let SocketAddr::V4(target) = target else {
        return Err(io::Error::other("the targets of the benches are IPv4"));
    };
    let [a, b, c, d] = target.ip().octets();
    let [high, low] = target.port().to_be_bytes();
    Ok([5, 1, 0, 1, a, b, c, d, high, low])
}

fn check_socks(answer: [u8; SOCKS_ANSWER_BYTES]) -> io::Result<()> {
    match answer {
        [5, 0, ..] => Ok(()),
        [_, code, ..] => Err(io::Error::other(format!("SOCKS refused with {code}"))),
    }
}
