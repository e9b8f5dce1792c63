//! Streams on one carrier: opening, both ends, resets, bounds, fair turns.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::Instant;
use yonder_protocol::link::OpenKind;
use yonder_protocol::{Target, TunnelError, TunnelErrorCode};
use yonder_transport::stream::Stream;

use crate::world::{Pair, World, drained, next, within};

fn target() -> Target {
    Target::new("localhost", 8000).unwrap()
}

/// The error that a stream's read fails with.
async fn read_error(stream: &mut Stream) -> TunnelError {
    let error = within(stream.read(&mut [0; 16])).await.unwrap_err();
    error
        .get_ref()
        .unwrap()
        .downcast_ref::<TunnelError>()
        .unwrap()
        .clone()
}

/// A stream that the client opened and the server took.
async fn opened(pair: &mut Pair) -> (Stream, Stream) {
    let client = pair.client.open_call().unwrap();
    let server = next(&mut pair.server_incoming).await.stream;
    (client, server)
}

#[tokio::test]
async fn a_verdict_travels_back() {
    let mut world = World::new();
    let mut pair = world.pair().await;

    let mut taken = pair.client.open_tunnel(&target()).unwrap();
    let incoming = next(&mut pair.server_incoming).await;
    assert_eq!(incoming.open.kind, OpenKind::Tunnel(target()));
    incoming.stream.accept("127.0.0.1:8000");
    assert_eq!(within(taken.opened()).await.unwrap(), "127.0.0.1:8000");

    let mut refused = pair.client.open_tunnel(&target()).unwrap();
    let reason = TunnelError::new(TunnelErrorCode::Refused, "connection refused");
    next(&mut pair.server_incoming)
        .await
        .stream
        .reset(reason.clone());
    assert_eq!(within(refused.opened()).await.unwrap_err(), reason);
    assert_eq!(
        refused.write(b"late").await.unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );

    drop((taken, refused, incoming.stream, pair));
    world.finish().await;
}

#[tokio::test]
async fn data_rides_with_the_open_and_writing_accepts() {
    let mut world = World::new();
    let mut pair = world.pair().await;
    let mut client = pair.client.open_tunnel(&target()).unwrap();
    client.write_all(b"early").await.unwrap();
    let mut server = next(&mut pair.server_incoming).await.stream;
    let mut bytes = [0; 5];
    within(server.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(&bytes, b"early");
    server.write_all(b"answer").await.unwrap();
    assert_eq!(within(client.opened()).await.unwrap(), "");
    drop((client, server, pair));
    world.finish().await;
}

#[tokio::test]
async fn either_half_opens_streams() {
    let mut world = World::new();
    let mut pair = world.pair().await;
    let mut server = pair.server.open_call().unwrap();
    server.write_all(b"call").await.unwrap();
    server.shutdown().await.unwrap();
    let mut client = next(&mut pair.client_incoming).await;
    assert_eq!(client.open.kind, OpenKind::Call);
    let mut request = Vec::new();
    within(client.stream.read_to_end(&mut request))
        .await
        .unwrap();
    assert_eq!(request, b"call");
    drop((client, server, pair));
    world.finish().await;
}

#[tokio::test]
async fn each_direction_ends_by_itself() {
    let mut world = World::new();
    let mut pair = world.pair().await;
    let (mut client, mut server) = opened(&mut pair).await;

    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(
        client.write(b"more").await.unwrap_err().kind(),
        ErrorKind::BrokenPipe
    );
    let mut read = Vec::new();
    within(server.read_to_end(&mut read)).await.unwrap();
    assert_eq!(read, b"question");

    // The other direction lives on, for as long as it likes.
    for _ in 0..3 {
        server.write_all(b"answer").await.unwrap();
        let mut bytes = [0; 6];
        within(client.read_exact(&mut bytes)).await.unwrap();
    }
    server.shutdown().await.unwrap();
    assert_eq!(within(client.read(&mut [0; 8])).await.unwrap(), 0);
    drop((client, server));
    while pair.client.status().streams > 0 || pair.server.status().streams > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(pair);
    world.finish().await;
}

#[tokio::test]
async fn what_was_written_before_the_end_arrives_after_the_handle_is_gone() {
    const BYTES: usize = 3 << 20;
    let mut world = World::new();
    let mut pair = world.pair().await;
    let (mut client, mut server) = opened(&mut pair).await;
    server.shutdown().await.unwrap();
    assert_eq!(within(client.read(&mut [0; 8])).await.unwrap(), 0);
    let mut writers = JoinSet::new();
    writers.spawn(async move {
        client.write_all(&vec![7; BYTES]).await.unwrap();
        client.shutdown().await.unwrap();
    });
    let mut read = Vec::new();
    within(server.read_to_end(&mut read)).await.unwrap();
    assert_eq!(read.len(), BYTES);
    drop((server, pair));
    world.finish().await;
}

#[tokio::test]
async fn a_reset_and_its_reason_reach_the_other_half() {
    let mut world = World::new();
    let mut pair = world.pair().await;
    let reason = TunnelError::new(TunnelErrorCode::Reset, "connection reset by the target");

    let (client, mut server) = opened(&mut pair).await;
    client.reset(reason.clone());
    assert_eq!(read_error(&mut server).await, reason);

    let (mut client, server) = opened(&mut pair).await;
    server.reset(reason.clone());
    assert_eq!(read_error(&mut client).await, reason);
    let error = client.shutdown().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    drop((client, pair));
    world.finish().await;
}

#[tokio::test]
async fn a_reset_discards_what_is_queued_both_ways() {
    let mut world = World::new();
    let mut pair = world.pair().await;
    let (mut client, mut server) = opened(&mut pair).await;
    client.write_all(&vec![1; 300_000]).await.unwrap();
    server.write_all(&vec![2; 300_000]).await.unwrap();
    // Both have something to read, which nobody reads.
    within(server.read(&mut [0; 1])).await.unwrap();
    within(client.read(&mut [0; 1])).await.unwrap();
    client.reset(TunnelError::new(TunnelErrorCode::Reset, "over"));
    within(async {
        let mut sink = vec![0; 64 * 1024];
        // What the reader holds in its hands already may still be read; the queue is gone.
        while server.read(&mut sink).await.is_ok() {}
    })
    .await;
    drop(server);
    drained(&world.desktop.budget).await;
    drained(&world.server.budget).await;
    drop(pair);
    world.finish().await;
}

#[tokio::test]
async fn dropping_a_stream_cancels_it() {
    let mut world = World::new();
    let mut pair = world.pair().await;
    let (client, mut server) = opened(&mut pair).await;
    drop(client);
    assert_eq!(
        read_error(&mut server).await.code,
        TunnelErrorCode::Cancelled
    );

    // Also when the request was complete: nobody waits for the answer any more.
    let (mut client, mut server) = opened(&mut pair).await;
    client.shutdown().await.unwrap();
    assert_eq!(within(server.read(&mut [0; 8])).await.unwrap(), 0);
    drop(client);
    assert_eq!(
        within(server.failed()).await.code,
        TunnelErrorCode::Cancelled
    );
    drop((server, pair));
    world.finish().await;
}

#[tokio::test]
async fn a_stream_dropped_before_it_was_opened_leaves_nothing() {
    let mut world = World::new();
    let pair = world.pair().await;
    for _ in 0..10 {
        let mut stream = pair.client.open_call().unwrap();
        // Takes no turn of the driver: the write is accepted at once.
        stream.write_all(b"never sent").await.unwrap();
        drop(stream);
    }
    drained(&world.desktop.budget).await;
    assert_eq!(pair.client.status().opened, 0);
    drop(pair);
    world.finish().await;
}

#[tokio::test]
async fn without_a_taker_streams_are_refused() {
    let mut world = World::new();
    let Pair {
        client,
        client_incoming,
        server,
        server_incoming,
    } = world.pair().await;
    drop(server_incoming);
    let mut stream = client.open_call().unwrap();
    assert_eq!(
        within(stream.opened()).await.unwrap_err().code,
        TunnelErrorCode::Denied
    );
    drop((stream, client, client_incoming, server));
    world.finish().await;
}

#[tokio::test]
async fn buffers_pass_without_a_copy() {
    let mut world = World::new();
    let mut pair = world.pair().await;
    let (mut client, mut server) = opened(&mut pair).await;
    let block = Bytes::from(vec![9; 200 * 1024]);
    let mut left = block.clone();
    while !left.is_empty() {
        within(std::future::poll_fn(|cx| {
            client.poll_write_bytes(cx, &mut left)
        }))
        .await
        .unwrap();
    }
    client.shutdown().await.unwrap();
    let mut read = 0;
    while let Some(bytes) = within(std::future::poll_fn(|cx| server.poll_read_bytes(cx)))
        .await
        .unwrap()
    {
        assert!(!bytes.is_empty() && bytes.iter().all(|&byte| byte == 9));
        read += bytes.len();
    }
    assert_eq!(read, block.len());
    drop((client, server, pair));
    world.finish().await;
}

#[tokio::test]
async fn a_stalled_reader_bounds_its_writer_and_disturbs_nobody() {
    const STALLED: usize = 8;
    let mut world = World::new();
    let mut pair = world.pair().await;
    let mut held = Vec::new();
    for _ in 0..STALLED {
        let (mut client, server) = opened(&mut pair).await;
        let block = vec![0; 64 * 1024];
        let mut accepted = 0;
        while let Ok(written) =
            tokio::time::timeout(Duration::from_millis(50), client.write(&block)).await
        {
            accepted += written.unwrap();
        }
        // The window, and nothing ahead of it: there is no credit for more.
        assert_eq!(accepted, world.server.window as usize);
        held.push((client, server));
    }
    assert!(world.server.budget.used() >= STALLED << 20);
    let (mut client, mut server) = opened(&mut pair).await;
    for _ in 0..100 {
        client.write_all(b"ping").await.unwrap();
        within(server.read_exact(&mut [0; 4])).await.unwrap();
    }
    // A reader that wakes up gets everything, and the writer may go on.
    let (stalled, reader) = held.first_mut().unwrap();
    let mut bytes = vec![0; 1 << 20];
    within(reader.read_exact(&mut bytes)).await.unwrap();
    within(async {
        let (written, read) = tokio::join!(
            stalled.write_all(&[1; 4]),
            reader.read_exact(&mut bytes[..4])
        );
        written.unwrap();
        read.unwrap();
    })
    .await;
    drop((held, client, server));
    drained(&world.server.budget).await;
    drop(pair);
    world.finish().await;
}

#[tokio::test]
async fn a_link_holds_4096_idle_streams_and_not_one_more() {
    const STREAMS: usize = 4_096;
    let mut world = World::new();
    let mut pair = world.pair().await;
    let mut held = Vec::with_capacity(STREAMS);
    for _ in 0..STREAMS {
        let stream = pair.client.open_tunnel(&target()).unwrap();
        let server = next(&mut pair.server_incoming).await.stream;
        server.accept("there");
        held.push((stream, server));
    }
    for (stream, _) in &mut held {
        assert_eq!(within(stream.opened()).await.unwrap(), "there");
    }
    assert_eq!(pair.server.status().streams, STREAMS as u64);
    let mut surplus = pair.client.open_tunnel(&target()).unwrap();
    assert_eq!(
        within(surplus.opened()).await.unwrap_err().code,
        TunnelErrorCode::Overloaded
    );

    // All go at once, and the link is as good as new.
    held.clear();
    let mut fresh = loop {
        let mut stream = pair.client.open_tunnel(&target()).unwrap();
        let taken =
            tokio::time::timeout(Duration::from_millis(100), pair.server_incoming.next()).await;
        if let Ok(Some(incoming)) = taken {
            incoming.stream.accept("again");
            assert_eq!(within(stream.opened()).await.unwrap(), "again");
            break (stream, incoming.stream);
        }
    };
    fresh.0.write_all(b"x").await.unwrap();
    within(fresh.1.read_exact(&mut [0])).await.unwrap();
    drop((fresh, surplus, pair));
    world.finish().await;
}

/// The median of a ping-pong over a line, beside bulk both ways or alone.
async fn ping_pong(bulk: bool) -> Duration {
    const RATE: usize = 2_000_000;
    let mut world = World::new();
    world
        .network
        .rate
        .store(RATE, std::sync::atomic::Ordering::SeqCst);
    let mut pair = world.pair().await;
    let mut tasks = JoinSet::new();
    if bulk {
        let (client, server) = opened(&mut pair).await;
        for stream in [client, server] {
            let (mut read, mut write) = tokio::io::split(stream);
            tasks.spawn(async move {
                let mut sink = vec![0; 64 * 1024];
                while read.read(&mut sink).await.is_ok_and(|length| length > 0) {}
            });
            tasks.spawn(async move {
                let block = vec![0; 256 * 1024];
                while write.write_all(&block).await.is_ok() {}
            });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (mut client, mut server) = opened(&mut pair).await;
    tasks.spawn(async move {
        let mut bytes = [0; 64];
        while server.read_exact(&mut bytes).await.is_ok() && server.write_all(&bytes).await.is_ok()
        {
        }
    });
    let mut times = Vec::new();
    for _ in 0..41 {
        let start = Instant::now();
        client.write_all(&[0; 64]).await.unwrap();
        within(client.read_exact(&mut [0; 64])).await.unwrap();
        times.push(start.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    times.sort();
    times[times.len() / 2]
}

#[tokio::test(start_paused = true)]
async fn bulk_lets_a_ping_pong_pass() {
    // What lies below the multiplexer (the pipe, its throttle, the batch on its way) is the floor here; the
    // multiplexer adds no more than one short batch to each way.
    const RATE: f64 = 2_000_000.0;
    let floor = ping_pong(false).await;
    let below = Duration::from_secs_f64(2.0 * f64::from(64 + 64 + 16 + 16) * 1024.0 / RATE);
    let busy = ping_pong(true).await;
    assert!(busy <= floor * 3 + below, "{busy:?} instead of {floor:?}");
}
