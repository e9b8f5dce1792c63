//! Links with several lanes: what goes where, and that each is resumed by itself.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use yonder_protocol::link::{CloseCode, Open};
use yonder_protocol::{Target, TunnelErrorCode};
use yonder_transport::link::{CloseReason, Link};
use yonder_transport::stream::Stream;

use crate::resume::{check, send};
use crate::world::{Pair, World, next, within};

fn target() -> Open {
    Open::tunnel(Target::new("localhost", 80).unwrap())
}

async fn joined(pair: &mut Pair) -> (Stream, Stream) {
    let near = pair.client.open(target()).unwrap();
    let far = next(&mut pair.server_incoming).await.stream;
    (near, far)
}

async fn carriers(link: &Link, count: u64) {
    World::carriers(link, count).await;
}

/// Sends without end, as fast as the link takes it.
async fn flood(mut stream: Stream) {
    let block = vec![7; 256 * 1024];
    while stream.write_all(&block).await.is_ok() {}
}

async fn swallow(mut stream: Stream) {
    let mut block = vec![0; 256 * 1024];
    while matches!(stream.read(&mut block).await, Ok(1..)) {}
}

fn wide() -> World {
    World::with(|config| config.lanes = 4)
}

#[tokio::test]
async fn a_second_lane_comes_by_itself_and_more_when_all_are_busy() {
    let mut world = wide();
    let mut pair = world.pair().await;
    carriers(&pair.client, 2).await;
    assert_eq!(pair.server.status().carriers, 2);

    let mut bulk = JoinSet::new();
    for lanes in [2, 2, 3, 4] {
        carriers(&pair.client, lanes).await;
        let (near, far) = joined(&mut pair).await;
        bulk.spawn(flood(near));
        bulk.spawn(swallow(far));
    }
    carriers(&pair.client, 4).await;
    bulk.shutdown().await;

    pair.client.close(CloseCode::Detached, "done");
    within(pair.server.closed()).await;
    world.finish().await;
}

#[tokio::test]
async fn every_lane_resumes_by_itself_and_loses_nothing() {
    const BYTES: usize = 6 << 20;
    let mut world = wide();
    let mut pair = world.pair().await;
    carriers(&pair.client, 2).await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (near, far) = joined(&mut pair).await;
        for stream in [near, far] {
            let (read, write) = tokio::io::split(stream);
            tasks.spawn(check(read, BYTES));
            tasks.spawn(send(write, BYTES));
        }
    }
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        world.network.kill();
    }
    within(async {
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    })
    .await;
    assert!(pair.client.status().reconnects > 0);
    pair.client.close(CloseCode::Detached, "done");
    within(pair.server.closed()).await;
    world.finish().await;
}

#[tokio::test]
async fn closing_the_link_resets_the_streams_of_every_lane() {
    for by_server in [false, true] {
        let mut world = wide();
        let mut pair = world.pair().await;
        carriers(&pair.client, 2).await;
        let mut streams = Vec::new();
        for _ in 0..6 {
            streams.push(joined(&mut pair).await);
        }
        let closer = if by_server {
            &pair.server
        } else {
            &pair.client
        };
        closer.close(CloseCode::ShuttingDown, "enough");
        for (mut near, mut far) in streams {
            assert_eq!(within(near.failed()).await.code, TunnelErrorCode::LinkDown);
            assert_eq!(within(far.failed()).await.code, TunnelErrorCode::LinkDown);
        }
        for link in [&pair.client, &pair.server] {
            let reason = within(link.closed()).await;
            assert!(
                matches!(reason, CloseReason::Local { .. } | CloseReason::Peer { .. }),
                "{reason}"
            );
        }
        world.finish().await;
    }
}

#[tokio::test]
async fn a_server_with_one_lane_a_link_serves_a_client_that_wants_more() {
    let mut world = wide();
    world.server.lanes = 1;
    let acceptor = yonder_transport::acceptor::Acceptor::new(world.server.clone());
    world
        .network
        .replace_acceptor(std::sync::Arc::new(acceptor));
    let mut pair = world.pair().await;
    assert!(world.accepted().await.is_err());
    let (mut near, mut far) = joined(&mut pair).await;
    near.write_all(b"word").await.unwrap();
    let mut word = [0; 4];
    within(far.read_exact(&mut word)).await.unwrap();
    assert_eq!(&word, b"word");
    drop((near, far));
    pair.client.close(CloseCode::Detached, "done");
    within(pair.server.closed()).await;
    world.finish().await;
}
