//! How links end: closed by either half, dropped, replaced, broken by a peer, drained.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;
use yonder_protocol::TunnelErrorCode;
use yonder_protocol::link::CloseCode;
use yonder_transport::client::LinkError;
use yonder_transport::link::{CloseReason, LinkPhase};

use crate::world::{World, next, phase, within};

#[tokio::test(start_paused = true)]
async fn the_reason_of_a_close_travels() {
    for code in [
        CloseCode::Replaced,
        CloseCode::Draining,
        CloseCode::ShuttingDown,
        CloseCode::Other(77),
    ] {
        let mut world = World::new();
        let mut pair = world.pair().await;
        let mut stream = pair.client.open_call().unwrap();
        stream.write_all(b"under way").await.unwrap();
        let server = next(&mut pair.server_incoming).await.stream;
        let start = Instant::now();
        pair.server.close(code, "because");
        let text = "because".to_owned();
        let reason = within(pair.client.closed()).await;
        assert_eq!(
            reason,
            CloseReason::Peer {
                code,
                text: text.clone()
            }
        );
        assert_eq!(reason.is_replaced(), code == CloseCode::Replaced);
        assert_eq!(
            within(pair.server.closed()).await,
            CloseReason::Local { code, text }
        );
        let error = within(stream.read(&mut [0; 4])).await.unwrap_err();
        assert!(error.to_string().contains("because"), "{error}");
        assert!(
            start.elapsed() < Duration::from_millis(100),
            "sockets are held for {:?}",
            start.elapsed()
        );
        drop((stream, server));
        world.finish().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_is_heard_although_the_carrier_just_died() {
    // Found dead at the close, or before it; with bytes under way, or none.
    for (found, bytes) in [(false, 0), (false, 100_000), (true, 0), (true, 100_000)] {
        let mut world = World::new();
        let mut pair = world.pair().await;
        let mut stream = pair.client.open_call().unwrap();
        stream.write_all(&vec![0; bytes]).await.unwrap();
        let server = next(&mut pair.server_incoming).await.stream;
        let start = Instant::now();
        if found {
            world.network.set_down(true);
            phase(&pair.client, |now| {
                matches!(now, LinkPhase::Reconnecting { .. })
            })
            .await;
            world.network.set_down(false);
        } else {
            world.network.kill();
        }
        pair.client.close(CloseCode::Detached, "done");
        let reason = within(pair.server.closed()).await;
        let text = "done".to_owned();
        let code = CloseCode::Detached;
        assert_eq!(reason, CloseReason::Peer { code, text });
        assert!(
            start.elapsed() < Duration::from_millis(100),
            "sockets are held for {:?}",
            start.elapsed()
        );
        drop((stream, server));
        world.finish().await;
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_closes_the_link() {
    let mut world = World::new();
    let mut pair = world.pair().await;
    let clone = pair.client.clone();
    let stream = pair.client.open_call().unwrap();
    let server = next(&mut pair.server_incoming).await.stream;
    drop(pair.client);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(pair.server.is_up());
    drop(clone);
    let reason = within(pair.server.closed()).await;
    assert!(
        matches!(
            reason,
            CloseReason::Peer {
                code: CloseCode::Detached,
                ..
            }
        ),
        "{reason}"
    );
    drop((stream, server));
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_farewell_passes_bulk_and_waits_for_no_stalled_peer() {
    let mut world = World::new();
    let mut pair = world.pair().await;
    let mut stream = pair.client.open_call().unwrap();
    let server = next(&mut pair.server_incoming).await.stream;
    stream.write_all(&vec![0; 1 << 20]).await.unwrap();
    pair.client.close(CloseCode::Detached, "enough");
    let reason = within(pair.server.closed()).await;
    assert!(
        matches!(
            reason,
            CloseReason::Peer {
                code: CloseCode::Detached,
                ..
            }
        ),
        "{reason}"
    );
    drop((stream, server, pair));
    world.finish().await;

    // Nobody takes the bytes: a second, and the sockets are closed all the same.
    let mut world = World::new();
    let mut pair = world.pair().await;
    world.network.stall();
    let mut stream = pair.client.open_call().unwrap();
    stream.write_all(&vec![0; 1 << 20]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let start = Instant::now();
    pair.client.close(CloseCode::Detached, "enough");
    within(pair.client.closed()).await;
    assert!(
        start.elapsed() <= Duration::from_millis(1_100),
        "{:?}",
        start.elapsed()
    );
    drop(stream);
    assert!(pair.client_incoming.next().await.is_none());
    drop(pair);
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_draining_server_takes_no_new_links_and_ends_the_old_ones() {
    let mut world = World::new();
    let pair = world.pair().await;
    let acceptor = world.network.acceptor();
    acceptor.drain();
    let error = within(world.connect()).await.unwrap_err();
    assert!(
        matches!(&error, LinkError::Handshake(_)) && !error.is_refused(),
        "{error}"
    );
    // A link that exists may still resume.
    world.network.kill();
    within(async {
        while pair.client.status().reconnects == 0 || !pair.client.is_up() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    acceptor
        .shutdown(CloseCode::ShuttingDown, "stopping", Duration::from_secs(2))
        .await;
    assert_eq!(acceptor.links(), 0);
    let reason = within(pair.client.closed()).await;
    assert!(
        matches!(
            reason,
            CloseReason::Peer {
                code: CloseCode::ShuttingDown,
                ..
            }
        ),
        "{reason}"
    );
    assert!(reason.may_reconnect());
    assert_eq!(
        pair.server.open_call().unwrap_err().code,
        TunnelErrorCode::LinkDown
    );
    drop(pair);
    world.finish().await;
}
