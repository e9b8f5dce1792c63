use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio_websockets::{ClientBuilder, Limits, Message, ServerBuilder};

use super::*;

fn pair(
    pipe: usize,
    masking: Masking,
) -> (WebSocketStream<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (client, server) = duplex(pipe);
    (
        WebSocketStream::client(client, Bytes::new(), masking),
        WebSocketStream::server(server, Bytes::new()),
    )
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
}

/// Sends `writes` as vectored writes of several slices each and reads in pieces of `read` bytes.
async fn relay(
    mut from: WebSocketStream<DuplexStream>,
    mut to: WebSocketStream<DuplexStream>,
    writes: Vec<Vec<u8>>,
    read: usize,
) -> Vec<u8> {
    let send = async {
        for bytes in &writes {
            let mut sent = 0;
            while sent < bytes.len() {
                let third = bytes[sent..].len().div_ceil(3);
                let slices: Vec<IoSlice<'_>> =
                    bytes[sent..].chunks(third).map(IoSlice::new).collect();
                sent += from.write_vectored(&slices).await.expect("writes");
            }
        }
        from.shutdown().await.expect("closes");
        from
    };
    let receive = async {
        let mut got = Vec::new();
        let mut buffer = vec![0; read];
        loop {
            match to.read(&mut buffer).await.expect("reads") {
                0 => return got,
                n => got.extend_from_slice(&buffer[..n]),
            }
        }
    };
    tokio::join!(send, receive).1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bytes_survive_partial_writes_and_any_reads(
        writes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3_000), 0..8),
        pipe in 1usize..500,
        read in 1usize..700,
        random: bool,
        from_client: bool,
    ) {
        let masking = if random { Masking::Random } else { Masking::Zero };
        let (client, server) = pair(pipe, masking);
        let (from, to) = if from_client { (client, server) } else { (server, client) };
        let expected = writes.concat();
        let got = runtime().block_on(relay(from, to, writes, read));
        prop_assert_eq!(got, expected);
    }
}

#[tokio::test]
async fn a_large_write_is_cut_into_messages() {
    let (client, server) = pair(64 * 1024, Masking::Zero);
    let payload: Vec<u8> = (0..=250).cycle().take(3 * MESSAGE_BYTES_MAX + 17).collect();
    assert_eq!(
        relay(client, server, vec![payload.clone()], 100_000).await,
        payload
    );
}

#[tokio::test]
async fn the_server_greets_and_nothing_sent_with_the_greeting_is_lost() {
    let (mut client, mut server) = pair(4096, Masking::Random);
    assert!(
        tokio::time::timeout(Duration::from_millis(20), client.greeted())
            .await
            .is_err(),
        "nobody has polled the server yet"
    );
    server.write_all(b"early").await.expect("writes");
    client.greeted().await.expect("the greeting came");
    let mut got = [0; 5];
    client.read_exact(&mut got).await.expect("reads");
    assert_eq!(&got, b"early");
}

#[tokio::test]
async fn a_reading_server_greets_too() {
    let (mut client, mut server) = pair(4096, Masking::Random);
    let mut buffer = [0; 1];
    tokio::select! {
        _ = server.read(&mut buffer) => panic!("the client has sent nothing"),
        greeted = client.greeted() => greeted.expect("the greeting came"),
    }
}

#[tokio::test]
async fn an_end_before_the_greeting_is_an_error() {
    let (mut client, server) = pair(4096, Masking::Random);
    drop(server);
    assert!(client.greeted().await.is_err());
}

#[tokio::test]
async fn bytes_received_with_the_http_head_come_first() {
    let (client, _server) = duplex(64);
    let mut stream = WebSocketStream::client(
        client,
        Bytes::from_static(b"\x82\x03abc\x82"),
        Masking::Zero,
    );
    let mut got = [0; 3];
    stream.read_exact(&mut got).await.expect("reads");
    assert_eq!(&got, b"abc");
}

#[tokio::test]
async fn a_cut_within_a_frame_is_not_an_orderly_end() {
    let (client, mut server) = duplex(64);
    server.write_all(b"\x82\x05ab").await.expect("writes");
    drop(server);
    let mut stream = WebSocketStream::client(client, Bytes::new(), Masking::Zero);
    let mut got = Vec::new();
    let error = stream.read_to_end(&mut got).await.expect_err("cut");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(got, b"ab");
}

#[tokio::test]
async fn a_broken_protocol_is_named_after_the_good_bytes_and_told_to_the_peer() {
    let (io, mut peer) = duplex(64);
    peer.write_all(b"\x82\x02ok\x81\x02no")
        .await
        .expect("writes");
    let mut stream = WebSocketStream::client(io, Bytes::new(), Masking::Zero);
    let mut got = [0; 16];
    assert_eq!(stream.read(&mut got).await.expect("good bytes"), 2);
    let error = stream.read(&mut got).await.expect_err("text");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("text message"));
    let mut close = [0; 8];
    peer.read_exact(&mut close).await.expect("a close frame");
    assert_eq!(close, [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xeb]);
    assert!(stream.write(b"more").await.is_err());
}

/// Both directions of our stream against an independent implementation.
async fn exchange_with_peer<P>(
    ours: &mut WebSocketStream<DuplexStream>,
    peer: &mut tokio_websockets::WebSocketStream<P>,
) where
    P: AsyncRead + AsyncWrite + Unpin,
{
    let payload: Vec<u8> = (0..=252).cycle().take(300_000).collect();
    let echo = async {
        let mut echoed = 0;
        let mut pinged = false;
        while echoed < payload.len() {
            let message = peer.next().await.expect("open").expect("valid frames");
            if message.is_pong() {
                continue;
            }
            assert!(message.is_binary());
            echoed += message.as_payload().len();
            peer.send(message).await.expect("sends");
            if !pinged {
                pinged = true;
                peer.send(Message::ping(Bytes::from_static(b"still there")))
                    .await
                    .expect("sends");
            }
        }
    };
    let (mut reader, mut writer) = tokio::io::split(ours);
    let send = async {
        for chunk in payload.chunks(70_000) {
            writer.write_all(chunk).await.expect("writes");
        }
        writer.flush().await.expect("flushes");
    };
    let receive = async {
        let mut got = vec![0; payload.len()];
        reader.read_exact(&mut got).await.expect("reads");
        assert!(got == payload, "echoed bytes differ");
    };
    tokio::join!(echo, send, receive);
}

#[tokio::test]
async fn tokio_websockets_as_server_understands_us() {
    for masking in [Masking::Zero, Masking::Random] {
        let (client, server) = duplex(10_000);
        let mut peer = ServerBuilder::new()
            .limits(Limits::unlimited())
            .serve(server);
        let mut ours = WebSocketStream::client(client, Bytes::new(), masking);
        exchange_with_peer(&mut ours, &mut peer).await;
        let (closed, seen) = tokio::join!(ours.shutdown(), peer.next());
        closed.expect("closes");
        assert!(seen.is_none_or(|message| message.expect("valid frames").is_close()));
    }
}

#[tokio::test]
async fn tokio_websockets_as_client_understands_us() {
    let (client, server) = duplex(10_000);
    let mut peer = ClientBuilder::new()
        .limits(Limits::unlimited())
        .take_over(client);
    let mut ours = WebSocketStream::server(server, Bytes::new());
    let (greeting, nothing) = tokio::join!(peer.next(), async {
        tokio::time::timeout(Duration::from_millis(20), ours.read_u8()).await
    });
    assert!(
        greeting
            .expect("open")
            .expect("valid")
            .as_payload()
            .is_empty()
    );
    assert!(nothing.is_err());
    exchange_with_peer(&mut ours, &mut peer).await;
    let (end, closed) = tokio::join!(ours.read_u8(), peer.close());
    assert_eq!(
        end.expect_err("closed").kind(),
        io::ErrorKind::UnexpectedEof
    );
    closed.expect("our answer to the close came");
}
