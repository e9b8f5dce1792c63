//! The targets that the server half serves by itself.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use yonder_protocol::link::Role;
use yonder_protocol::{Builtin, TunnelErrorCode};
use yonder_transport::stream::Stream;

use crate::link::attach;
use crate::support::{PATIENCE, Server};

async fn rest(stream: &mut Stream) -> Vec<u8> {
    let mut bytes = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut bytes))
        .await
        .unwrap()
        .unwrap();
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn source_sink_and_echo_keep_count() {
    // More than a window, and no multiple of anything.
    const BYTES: u64 = 3_000_001;
    let server = Server::start(&["--egress", "strict"]);
    let desk = attach(&server, Role::Tunnels, None).await;
    let open = |builtin: Builtin| desk.link.open_tunnel(&builtin.target()).unwrap();

    let mut source = open(Builtin::Source { bytes: Some(BYTES) });
    assert_eq!(rest(&mut source).await.len() as u64, BYTES);

    let mut endless = open(Builtin::Source { bytes: None });
    let mut some = vec![0; 2_000_000];
    endless.read_exact(&mut some).await.unwrap();
    endless.shutdown().await.unwrap();
    rest(&mut endless).await;

    let mut sink = open(Builtin::Sink);
    sink.write_all(&some).await.unwrap();
    sink.shutdown().await.unwrap();
    let counts = String::from_utf8(rest(&mut sink).await).unwrap();
    assert_eq!(counts.lines().last(), Some("2000000"), "{counts}");

    let mut echo = open(Builtin::Echo);
    let sent = &some[..300_000];
    let (mut read, mut write) = tokio::io::split(&mut echo);
    let mut back = vec![0; sent.len()];
    let (written, got) = tokio::join!(write.write_all(sent), read.read_exact(&mut back));
    written.unwrap();
    got.unwrap();
    assert!(back == sent);
    echo.shutdown().await.unwrap();
    assert!(rest(&mut echo).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_does_not_reach_them() {
    let server = Server::start(&[]);
    let desk = attach(&server, Role::Browser, None).await;
    for builtin in [
        Builtin::Source { bytes: None },
        Builtin::Sink,
        Builtin::Echo,
    ] {
        let mut stream = desk.link.open_tunnel(&builtin.target()).unwrap();
        let error = timeout(PATIENCE, stream.opened())
            .await
            .unwrap()
            .unwrap_err();
        assert_eq!(error.code, TunnelErrorCode::NameNotFound, "{error}");
    }
}
