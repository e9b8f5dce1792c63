//! A TCP relay that stands for the network between the halves: stopped by a signal, it is a line that has gone silent without
//! telling anybody.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Relays every connection to `to`, until killed.
pub(crate) fn run(to: SocketAddr) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?
        .block_on(relay(to))
}

async fn relay(to: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .context("could not listen on loopback")?;
    println!("{}", listener.local_addr()?);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (mut client, _) = accepted?;
                connections.spawn(async move {
                    // Either end may go; then so does the other, and nobody asks why.
                    if let Ok(mut server) = TcpStream::connect(to).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
