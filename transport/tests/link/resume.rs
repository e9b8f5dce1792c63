//! Carriers that die: nothing is lost or repeated within the grace, and past it everything is reset.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use yonder_protocol::link::CloseCode;
use yonder_protocol::{TunnelError, TunnelErrorCode};
use yonder_transport::acceptor::Acceptor;
use yonder_transport::link::{CloseReason, LinkPhase};
use yonder_transport::stream::Stream;

use crate::world::{World, next, phase, within};

/// The byte at an offset of a test stream: lost, repeated and swapped ones all show.
pub(crate) fn pattern(offset: usize) -> u8 {
    (offset.wrapping_mul(0x9e37_79b1) >> 13).to_be_bytes()[7]
}

pub(crate) async fn send(mut stream: impl tokio::io::AsyncWrite + Unpin, bytes: usize) {
    let mut sent = 0;
    // Portions of changing sizes.
    while sent < bytes {
        let length = (1 + sent % 70_000).min(bytes - sent);
        let block: Vec<u8> = (sent..sent + length).map(pattern).collect();
        stream.write_all(&block).await.unwrap();
        sent += length;
    }
    stream.shutdown().await.unwrap();
}

pub(crate) async fn check(mut stream: impl tokio::io::AsyncRead + Unpin, bytes: usize) {
    let mut block = vec![0; 50_000];
    let mut read = 0;
    loop {
        let length = stream.read(&mut block).await.unwrap();
        if length == 0 {
            break;
        }
        for &byte in &block[..length] {
            assert_eq!(byte, pattern(read), "at byte {read}");
            read += 1;
        }
    }
    assert_eq!(read, bytes);
}

#[tokio::test(start_paused = true)]
async fn many_cuts_lose_and_repeat_nothing() {
    const BYTES: usize = 24 << 20;
    const CUTS: usize = 60;
    let mut world = World::new();
    // From cuts within the greeting to cuts far in the data.
    world.network.cut_after([usize::MAX]);
    let mut pair = world.pair().await;
    world
        .network
        .cut_after((0..CUTS).map(|n| (n * 77_919) % 1_200_000 + n));

    let mut tasks = JoinSet::new();
    let bulk = pair.client.open_call().unwrap();
    let far = next(&mut pair.server_incoming).await.stream;
    for stream in [bulk, far] {
        let (read, write) = tokio::io::split(stream);
        tasks.spawn(check(read, BYTES));
        tasks.spawn(send(write, BYTES));
    }
    let mut ping = pair.client.open_call().unwrap();
    let mut pong = next(&mut pair.server_incoming).await.stream;
    tasks.spawn(async move {
        let mut bytes = [0; 8];
        while pong.read_exact(&mut bytes).await.is_ok() {
            pong.write_all(&bytes).await.unwrap();
        }
    });
    world.network.kill();
    let mut pings = 0_u64;
    while world.network.dialled() < CUTS {
        ping.write_all(&pings.to_be_bytes()).await.unwrap();
        let mut bytes = [0; 8];
        tokio::time::timeout(Duration::from_mins(10), ping.read_exact(&mut bytes))
            .await
            .expect("this hangs")
            .unwrap();
        assert_eq!(u64::from_be_bytes(bytes), pings);
        pings += 1;
        // Streams that open and end meanwhile are seen by the other half exactly once.
        drop(pair.client.open_call().unwrap());
    }
    ping.shutdown().await.unwrap();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let status = pair.client.status();
    assert!(status.reconnects >= 20, "{status:?}");
    assert!(pings > 20, "{pings}");
    drop((ping, pair));
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn an_open_waits_for_the_next_carrier() {
    let mut world = World::new();
    let mut pair = world.pair().await;
    world.network.set_down(true);
    phase(&pair.client, |phase| {
        matches!(phase, LinkPhase::Reconnecting { attempts: 2.., .. })
    })
    .await;
    assert!(!pair.client.is_up());
    let error = pair
        .client
        .wait_up(Duration::from_millis(10))
        .await
        .unwrap_err();
    assert_eq!(error.code, TunnelErrorCode::LinkDown);

    let mut stream = pair.client.open_call().unwrap();
    stream.write_all(b"patience").await.unwrap();
    // And one that is given up before the carrier comes.
    let mut given_up = pair.client.open_call().unwrap();
    given_up.write_all(b"never mind").await.unwrap();
    drop(given_up);
    world.network.set_down(false);
    pair.client.wait_up(Duration::from_secs(15)).await.unwrap();
    let mut bytes = [0; 8];
    let mut server = next(&mut pair.server_incoming).await.stream;
    within(server.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(&bytes, b"patience");
    drop((stream, server, pair));
    world.finish().await;
}

async fn link_down(stream: &mut Stream) {
    let error = within(stream.read(&mut [0; 8])).await.unwrap_err();
    let error = error
        .get_ref()
        .unwrap()
        .downcast_ref::<TunnelError>()
        .unwrap();
    assert_eq!(error.code, TunnelErrorCode::LinkDown, "{error}");
}

#[tokio::test(start_paused = true)]
async fn past_the_grace_both_ends_are_reset() {
    let mut world = World::new();
    let mut pair = world.pair().await;
    let mut client = pair.client.open_call().unwrap();
    client.write_all(&vec![0; 100_000]).await.unwrap();
    let mut server = next(&mut pair.server_incoming).await.stream;
    server.write_all(&vec![0; 100_000]).await.unwrap();
    // Everything arrives and nobody reads it.
    while world.desktop.budget.used() + world.server.budget.used() < 200_000
        || pair.client.status().queued + pair.server.status().queued < 200_000
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let start = tokio::time::Instant::now();
    world.network.set_down(true);
    tokio::time::timeout(Duration::from_mins(1), async {
        assert!(matches!(pair.client.closed().await, CloseReason::Lost(_)));
        assert!(matches!(pair.server.closed().await, CloseReason::Lost(_)));
    })
    .await
    .unwrap();
    let took = start.elapsed();
    assert!(
        took >= Duration::from_secs(30) && took < Duration::from_secs(31),
        "{took:?}"
    );
    link_down(&mut client).await;
    link_down(&mut server).await;
    assert!(pair.client_incoming.next().await.is_none());
    assert_eq!(
        pair.client.open_call().unwrap_err().code,
        TunnelErrorCode::LinkDown
    );
    assert!(pair.client.closed().await.may_reconnect());
    drop((client, server));
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_forgot_the_link_ends_it_at_once() {
    let mut world = World::new();
    let mut pair = world.pair().await;
    let mut client = pair.client.open_call().unwrap();
    let server = next(&mut pair.server_incoming).await.stream;
    let restarted = Arc::new(Acceptor::new(world.server.clone()));
    let old = world.network.acceptor();
    world.network.replace_acceptor(restarted);
    world.network.kill();
    let reason = within(pair.client.closed()).await;
    assert!(
        matches!(&reason, CloseReason::Lost(text) if text.contains("does not know")),
        "{reason}"
    );
    link_down(&mut client).await;
    assert!(world.accepted().await.is_err());
    // A new one is had at once.
    let again = world.pair().await;
    drop((again, client, server, pair));
    within(async {
        while old.links() > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_carrier_is_found_dead_and_replaced() {
    let mut world = World::new();
    let mut pair = world.pair().await;
    world.network.stall();
    let mut stream = pair.client.open_call().unwrap();
    stream.write_all(b"hello?").await.unwrap();
    let start = tokio::time::Instant::now();
    // Fifteen seconds of silence, ten more after a ping.
    tokio::time::timeout(Duration::from_mins(1), async {
        while pair.client.status().reconnects == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .unwrap();
    let took = start.elapsed();
    assert!(took <= Duration::from_secs(26), "{took:?}");
    let mut server = next(&mut pair.server_incoming).await.stream;
    let mut bytes = [0; 6];
    within(server.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(&bytes, b"hello?");
    assert_eq!(pair.server.status().reconnects, 1);
    drop((stream, server, pair));
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn idle_links_stay_up() {
    let mut world = World::new();
    let mut pair = world.pair().await;
    let mut client = pair.client.open_call().unwrap();
    let mut server = next(&mut pair.server_incoming).await.stream;
    tokio::time::sleep(Duration::from_hours(2)).await;
    assert!(pair.client.is_up() && pair.server.is_up());
    assert_eq!(world.network.dialled(), 1);
    server.write_all(b"x").await.unwrap();
    within(client.read_exact(&mut [0])).await.unwrap();
    assert!(pair.client.status().round_trip.is_some());
    drop((client, server, pair));
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn closing_while_no_carrier_is_up_does_not_wait_for_one() {
    let mut world = World::new();
    let pair = world.pair().await;
    world.network.set_down(true);
    phase(&pair.client, |phase| {
        matches!(phase, LinkPhase::Reconnecting { .. })
    })
    .await;
    phase(&pair.server, |phase| {
        matches!(phase, LinkPhase::Reconnecting { .. })
    })
    .await;
    let start = tokio::time::Instant::now();
    pair.client.close(CloseCode::Detached, "done");
    pair.server.close(CloseCode::ShuttingDown, "stopping");
    let reasons = (
        within(pair.client.closed()).await,
        within(pair.server.closed()).await,
    );
    assert!(
        matches!(
            reasons,
            (CloseReason::Local { .. }, CloseReason::Local { .. })
        ),
        "{reasons:?}"
    );
    assert!(start.elapsed() < Duration::from_millis(100));
    drop(pair);
    world.finish().await;
}
