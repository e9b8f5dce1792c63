//! A network that cuts the carrier while tunnels are in use.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::{SinkExt as _, StreamExt as _};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_websockets::{ClientBuilder, Message};
use yonder_tests::cut::CuttingRelay;
use yonder_tests::halves::{Desktop, Server};
use yonder_tests::site::{Site, download_hash, hex};
use yonder_tests::{PATIENCE, eventually};

struct Rig {
    server: Server,
    relay: CuttingRelay,
}

impl Rig {
    async fn start(arguments: &[&str]) -> Self {
        let server = Server::start_with(arguments).await;
        let relay = CuttingRelay::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await;
        Self { server, relay }
    }

    fn url(&self) -> String {
        format!("http://{}", self.relay.address)
    }
}

#[tokio::test]
async fn twenty_cuts_lose_and_repeat_nothing() {
    const BYTES: u64 = 256 << 20;
    const CUTS: u64 = 20;
    let rig = Rig::start(&[]).await;
    let site = Site::start().await;
    let echo = site.address;
    let (_download_half, proxy) = Desktop::proxy(&rig.server, &rig.url()).await;
    let (_socket_half, port) = Desktop::forward(&rig.server, &rig.url(), &echo.to_string()).await;

    // A live WebSocket that counts up for as long as the download runs.
    let stop = Arc::new(AtomicBool::new(false));
    let echoes = Arc::new(AtomicU64::new(0));
    let mut socket_task = JoinSet::new();
    socket_task.spawn({
        let (stop, echoes) = (Arc::clone(&stop), Arc::clone(&echoes));
        async move {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let uri = "ws://localhost/websocket";
            let (mut socket, _) = ClientBuilder::new()
                .uri(uri)
                .unwrap()
                .connect_on(stream)
                .await
                .unwrap();
            while !stop.load(Ordering::Relaxed) {
                let number = echoes.load(Ordering::Relaxed).to_string();
                socket.send(Message::text(number.clone())).await.unwrap();
                let answer = socket
                    .next()
                    .await
                    .expect("the WebSocket stays open")
                    .unwrap();
                assert_eq!(answer.as_text(), Some(number.as_str()));
                echoes.fetch_add(1, Ordering::Relaxed);
            }
        }
    });

    let mut curl = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--noproxy",
            "",
            "--proxy",
            &proxy,
        ])
        .arg(site.url(&format!("/download?{BYTES}")))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdout = curl.stdout.take().unwrap();
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    let (mut received, mut cuts) = (0_u64, 0);
    loop {
        let count = stdout.read(&mut buffer).await.unwrap();
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
        received += count as u64;
        if cuts < CUTS && received >= (cuts + 1) * BYTES / (CUTS + 1) {
            // The WebSocket, too, must be in use between any two cuts.
            let before = echoes.load(Ordering::Relaxed);
            eventually("the WebSocket goes on", async || {
                (echoes.load(Ordering::Relaxed) > before)
                    .then_some(())
                    .ok_or("silent")
            })
            .await;
            rig.relay.cut();
            cuts += 1;
        }
    }
    assert!(curl.wait().await.unwrap().success());
    assert_eq!(cuts, CUTS);
    assert_eq!(received, BYTES);
    assert_eq!(hex(&hash.finalize()), download_hash(BYTES));
    let before = echoes.load(Ordering::Relaxed);
    eventually("the WebSocket lives after the last cut", async || {
        (echoes.load(Ordering::Relaxed) > before)
            .then_some(())
            .ok_or("silent")
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    socket_task.join_next().await.unwrap().unwrap();
}

#[tokio::test]
async fn past_the_grace_both_ends_see_a_reset() {
    let rig = Rig::start(&["--resume-grace", "2"]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let (mut desktop, port) = Desktop::forward(&rig.server, &rig.url(), &target).await;
    let mut client = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    client.write_all(b"ping").await.unwrap();
    let (mut served, _) = listener.accept().await.unwrap();
    let mut bytes = [0; 4];
    served.read_exact(&mut bytes).await.unwrap();
    rig.relay.block();
    for (end, stream) in [("client", &mut client), ("target", &mut served)] {
        let read = timeout(PATIENCE, stream.read(&mut bytes))
            .await
            .expect("no hang");
        let error = read.expect_err(end);
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{end}");
    }
    eventually("the server half has released the tunnel", async || {
        let status = rig.server.status().await;
        (status["totals"]["tunnelsOpen"] == 0)
            .then_some(())
            .ok_or_else(|| status.to_string())
    })
    .await;
    // The desktop half comes back by itself once the network does.
    rig.relay.mend();
    eventually("a new connection works", async || {
        let mut client = TcpStream::connect(("127.0.0.1", port)).await?;
        client.write_all(b"pong").await?;
        // A tunnel that could not be opened yet is reset; one that could reaches the target.
        let mut nothing = [0; 1];
        tokio::select! {
            accepted = listener.accept() => {
                accepted?.0.read_exact(&mut bytes).await
            }
            read = client.read(&mut nothing) => Err(read.err().unwrap_or_else(|| std::io::ErrorKind::UnexpectedEof.into())),
        }
    })
    .await;
    assert_eq!(&bytes, b"pong");
    assert!(desktop.process.ended().is_none());
}
