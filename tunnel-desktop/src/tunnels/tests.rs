use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use yonder_protocol::Target;
use yonder_proxy::DialMode;
use yonder_transport::relay::{RelayError, relay};

use crate::attach::{Attachment, Fresh};
use crate::test_server::{TestServer, attached};
use crate::tunnels::Tunnels;

/// Far beyond what any step here takes, so that a hang fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client and a target joined by a relayed tunnel.
struct Joined {
    client: TcpStream,
    target: TcpStream,
    relays: JoinSet<Result<(), RelayError>>,
    tunnels: Tunnels,
    _attachment: (Attachment, Fresh),
    _server: Arc<TestServer>,
}

async fn joined() -> Joined {
    let (server, _seen) = TestServer::new();
    let (attachment, fresh, tunnels) = attached(&server).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let target = Target::new("127.0.0.1", at.port()).unwrap();
    let local = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(local.local_addr().unwrap())
        .await
        .unwrap();
    let (socket, _) = local.accept().await.unwrap();
    let tunnel = tunnels.open(&target, DialMode::Verdict).await.unwrap();
    let mut relays = JoinSet::new();
    relays.spawn(relay(tunnel, socket, "the client", Arc::new(())));
    let (target, _) = listener.accept().await.unwrap();
    Joined {
        client,
        target,
        relays,
        tunnels,
        _attachment: (attachment, fresh),
        _server: server,
    }
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("it took too long")
}

#[tokio::test]
async fn each_direction_ends_by_itself() {
    let mut joined = joined().await;
    joined.client.write_all(b"question").await.unwrap();
    joined.client.shutdown().await.unwrap();
    let mut question = String::new();
    within(joined.target.read_to_string(&mut question))
        .await
        .unwrap();
    assert_eq!(question, "question");
    joined.target.write_all(b"answer").await.unwrap();
    joined.target.shutdown().await.unwrap();
    let mut answer = String::new();
    within(joined.client.read_to_string(&mut answer))
        .await
        .unwrap();
    assert_eq!(answer, "answer");
    within(joined.relays.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn the_other_direction_may_end_first() {
    let mut joined = joined().await;
    joined.target.shutdown().await.unwrap();
    assert_eq!(within(joined.client.read(&mut [0])).await.unwrap(), 0);
    joined.client.write_all(b"late").await.unwrap();
    joined.client.shutdown().await.unwrap();
    let mut late = String::new();
    within(joined.target.read_to_string(&mut late))
        .await
        .unwrap();
    assert_eq!(late, "late");
}

#[tokio::test]
async fn much_arrives_whole_in_both_directions() {
    const BYTES: usize = 8 * 1024 * 1024;
    let joined = joined().await;
    let pattern: Vec<u8> = (0..BYTES)
        .map(|at| u8::try_from(at % 251).unwrap())
        .collect();
    let (client_read, mut client_write) = joined.client.into_split();
    let (target_read, mut target_write) = joined.target.into_split();
    let read = |mut from: tokio::net::tcp::OwnedReadHalf| async move {
        let mut all = Vec::new();
        from.read_to_end(&mut all).await.unwrap();
        all
    };
    let ((), (), at_target, at_client) = within(async {
        tokio::join!(
            async {
                client_write.write_all(&pattern).await.unwrap();
                client_write.shutdown().await.unwrap();
            },
            async {
                target_write.write_all(&pattern).await.unwrap();
                target_write.shutdown().await.unwrap();
            },
            read(target_read),
            read(client_read),
        )
    })
    .await;
    assert!(at_target == pattern && at_client == pattern);
}

#[tokio::test]
async fn a_reset_of_the_target_reaches_the_client() {
    let mut joined = joined().await;
    joined.target.set_zero_linger().unwrap();
    drop(joined.target);
    let error = within(joined.client.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_reset_of_the_client_reaches_the_target() {
    let mut joined = joined().await;
    joined.client.set_zero_linger().unwrap();
    drop(joined.client);
    let error = within(joined.target.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_target_that_refuses_is_named() {
    let joined = joined().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let target = Target::new("127.0.0.1", port).unwrap();
    let error = within(joined.tunnels.open(&target, DialMode::Verdict))
        .await
        .unwrap_err();
    assert!(error.message.contains("refused"), "{error}");
}
