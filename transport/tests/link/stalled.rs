//! Readers that stall, a thousand at once: memory stays within the budget, and nothing else notices.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use yonder_protocol::Target;
use yonder_protocol::link::budget::LEAST_WINDOW;
use yonder_protocol::link::{Budget, EARLY_WINDOW, Open};
use yonder_transport::link::{Incoming, Link};
use yonder_transport::stream::Stream;

use crate::world::{World, next, within};

const STREAMS: usize = 1_000;

/// An eighth of the desktop half's: what the test moves grows with it.
const BUDGET: usize = 8 << 20;

fn world() -> World {
    let mut world = World::with(|config| config.streams_max = 2 * STREAMS);
    world.desktop.budget = Arc::new(Budget::new(BUDGET));
    world
}

fn target() -> Open {
    Open::tunnel(Target::new("localhost", 80).unwrap())
}

/// Writes until nothing more is taken.
async fn fill(mut stream: Stream) -> Stream {
    const QUIET: Duration = Duration::from_secs(2);
    let block = vec![7; 64 * 1024];
    while let Ok(written) = tokio::time::timeout(QUIET, stream.write(&block)).await {
        written.unwrap();
    }
    stream
}

/// Opens streams from one end and fills each from the other or from the same. Returns those who do not read, and those
/// who wrote.
async fn stall(
    open: &Link,
    incoming: &mut Incoming,
    opener_writes: bool,
) -> (Vec<Stream>, Vec<Stream>) {
    let mut readers = Vec::new();
    let mut fillers = Vec::new();
    for _ in 0..STREAMS {
        let near = open.open(target()).unwrap();
        let far = next(incoming).await.stream;
        let (reader, writer) = if opener_writes {
            (far, near)
        } else {
            (near, far)
        };
        readers.push(reader);
        fillers.push(writer);
    }
    // All are open, and were promised something, before the first byte.
    let mut tasks = JoinSet::new();
    for writer in fillers {
        tasks.spawn(fill(writer));
    }
    let writers = within(tasks.join_all()).await;
    (readers, writers)
}

/// Moves more than any window over a new stream while the others are stalled.
async fn another_works(open: &Link, incoming: &mut Incoming) {
    const BYTES: usize = 3 << 20;
    let mut near = open.open(target()).unwrap();
    let mut far = next(incoming).await.stream;
    let exchange = async {
        let (mut near_reader, mut near_writer) = tokio::io::split(&mut near);
        let (mut far_reader, mut far_writer) = tokio::io::split(&mut far);
        let bytes = vec![9; BYTES];
        let (mut up, mut down) = (vec![0; BYTES], vec![0; BYTES]);
        let (a, b, c, d) = tokio::join!(
            near_writer.write_all(&bytes),
            far_writer.write_all(&bytes),
            near_reader.read_exact(&mut down),
            far_reader.read_exact(&mut up),
        );
        a.and(b).unwrap();
        c.and(d).unwrap();
        assert!(up == bytes && down == bytes);
    };
    within(exchange).await;
}

/// Reads what is queued, and as much again, to show that a stalled stream goes on where it was.
async fn goes_on(mut reader: Stream, mut writer: Stream) {
    const BYTES: usize = 3 << 20;
    let block = vec![7; 64 * 1024];
    let write = async { while writer.write_all(&block).await.is_ok() {} };
    let mut bytes = vec![0; BYTES];
    let exchange = async {
        tokio::select! {
            read = reader.read_exact(&mut bytes) => read.unwrap(),
            () = write => panic!("the stream is gone"),
        }
    };
    within(exchange).await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_stalled_downloads_stay_within_the_budget() {
    let mut world = world();
    let mut pair = world.pair().await;
    let stalled = stall(&pair.client, &mut pair.server_incoming, false);
    let (mut readers, mut writers) = stalled.await;
    let budget = Arc::clone(&world.desktop.budget);
    // Once all is promised, each further stream still has the least window.
    let bound = BUDGET + STREAMS * LEAST_WINDOW as usize;
    assert!(
        budget.used() > BUDGET / 2,
        "{} bytes are queued",
        budget.used()
    );
    assert!(budget.used() <= bound, "{} bytes are queued", budget.used());
    another_works(&pair.client, &mut pair.server_incoming).await;
    assert!(budget.used() <= bound, "{} bytes are queued", budget.used());
    goes_on(readers.pop().unwrap(), writers.pop().unwrap()).await;
    drop((readers, writers, pair));
    world.finish().await;
    assert_eq!(budget.promised(), 0, "a promise is kept for ever");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_stalled_uploads_stay_within_the_budget() {
    let mut world = world();
    let mut pair = world.pair().await;
    // The desktop half is the one that takes what the other opens.
    let stalled = stall(&pair.server, &mut pair.client_incoming, true);
    let (mut readers, mut writers) = stalled.await;
    let budget = Arc::clone(&world.desktop.budget);
    let bound = BUDGET + STREAMS * EARLY_WINDOW as usize;
    assert!(
        budget.used() > BUDGET / 2,
        "{} bytes are queued",
        budget.used()
    );
    assert!(budget.used() <= bound, "{} bytes are queued", budget.used());
    drop(readers.split_off(STREAMS / 2));
    another_works(&pair.client, &mut pair.server_incoming).await;
    assert!(budget.used() <= bound, "{} bytes are queued", budget.used());
    writers.truncate(STREAMS / 2);
    goes_on(readers.pop().unwrap(), writers.pop().unwrap()).await;
    drop((readers, writers, pair));
    world.finish().await;
    assert_eq!(budget.promised(), 0, "a promise is kept for ever");
}
