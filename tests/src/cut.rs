//! A TCP relay that cuts its connections when told, as a network does to a laptop.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A relay to one address.
#[derive(Debug)]
pub struct CuttingRelay {
    /// Where it listens.
    pub address: SocketAddr,
    /// Each new value cuts what is open; `true` in the second field refuses newcomers as well.
    state: watch::Sender<(u64, bool)>,
    accepted: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl CuttingRelay {
    /// Relays to `target` on a loopback port.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = watch::Sender::new((0, false));
        let accepted = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(
            listener,
            target,
            state.clone(),
            Arc::clone(&accepted),
        ));
        Self {
            address,
            state,
            accepted,
            _tasks: tasks,
        }
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Cuts every open connection; newcomers are relayed again.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.0 += 1);
    }

    /// Cuts every open connection and, until [`Self::mend`], every newcomer.
    pub fn block(&self) {
        self.state.send_modify(|state| *state = (state.0 + 1, true));
    }

    /// Relays newcomers again.
    pub fn mend(&self) {
        self.state.send_modify(|state| state.1 = false);
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    state: watch::Sender<(u64, bool)>,
    accepted: Arc<AtomicU64>,
) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        accepted.fetch_add(1, Ordering::Relaxed);
        let mut state = state.subscribe();
        let (born, blocked) = *state.borrow_and_update();
        if blocked {
            continue;
        }
        connections.spawn(async move {
            tokio::select! {
                _ = relay(client, target) => {}
                _ = state.wait_for(|now| now.0 != born) => {}
            }
        });
    }
}

async fn relay(mut client: TcpStream, target: SocketAddr) -> std::io::Result<()> {
    let mut server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
