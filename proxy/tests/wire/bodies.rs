//! Bodies of every framing, both ways, and the interim responses around them.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Origin, Peer, Setup, soon};

/// A client that has sent `request` and the target that has read its head.
async fn asked(setup: &Setup, origin: &Origin, line: &str, lines: &str) -> (Peer, Peer) {
    let mut client = setup.client().await;
    client
        .send(setup.request(&format!("{line} {}", origin.url("/")), lines))
        .await;
    let mut server = origin.accept().await;
    server.head().await;
    (client, server)
}

#[tokio::test]
async fn chunks_and_trailers_pass_both_ways_as_they_are() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let body = "5;ext=\"a;b\"\r\nhello\r\n0A\r\n0123456789\r\n0\r\nX-Sum: 15\r\n\r\n";
    let (mut client, mut server) =
        asked(&setup, &origin, "POST", "Transfer-Encoding: chunked\r\n").await;
    for part in body.as_bytes().chunks(7) {
        client.send(part).await;
        server.expect(std::str::from_utf8(part).unwrap()).await;
    }
    server
        .send("HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    client
        .expect("HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    for part in body.as_bytes().chunks(7) {
        server.send(part).await;
        client.expect(std::str::from_utf8(part).unwrap()).await;
    }
    // Both connections are still good.
    client
        .send(setup.request(&format!("GET {}", origin.url("/next")), ""))
        .await;
    assert!(server.head().await.starts_with("GET /next "));
}

#[tokio::test]
async fn interim_responses_are_passed_on() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let lines = "Expect: 100-continue\r\nContent-Length: 4\r\n";
    let mut client = setup.client().await;
    client
        .send(setup.request(&format!("PUT {}", origin.url("/")), lines))
        .await;
    let mut server = origin.accept().await;
    assert!(server.head().await.contains("Expect: 100-continue\r\n"));
    server
        .send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
        .await;
    client
        .expect("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
        .await;
    client.send("body").await;
    server.expect("body").await;
    server.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    client.expect("HTTP/1.1 204 No Content\r\n\r\n").await;
    client
        .send(setup.request(&format!("GET {}", origin.url("/")), ""))
        .await;
    server.head().await;
}

#[tokio::test]
async fn an_expectation_may_be_refused_without_the_body() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let lines = "Expect: 100-continue\r\nContent-Length: 4\r\n";
    let (mut client, mut server) = asked(&setup, &origin, "PUT", lines).await;
    server
        .send("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno")
        .await;
    let (head, body) = client.answer().await;
    assert!(head.contains("Connection: close\r\n") && body == "no");
    client.finish().await;
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn responses_without_a_body_end_with_their_head() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let (mut client, mut server) = asked(&setup, &origin, "HEAD", "").await;
    for (status, next) in [
        ("200 OK", "GET"),
        ("304 Not Modified", "HEAD"),
        ("204 No Content", "GET"),
    ] {
        server
            .send(format!("HTTP/1.1 {status}\r\nContent-Length: 7\r\n\r\n"))
            .await;
        let head = client.head().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")));
        assert_eq!(
            head.contains("Content-Length: 7\r\n"),
            !status.starts_with("204")
        );
        client
            .send(setup.request(&format!("{next} {}", origin.url("/")), ""))
            .await;
        server.head().await;
    }
    assert_eq!(setup.record.count(), 1);
}

#[tokio::test]
async fn a_body_without_length_lasts_until_the_target_closes() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let (mut client, mut server) = asked(&setup, &origin, "GET", "").await;
    server.send("HTTP/1.0 200 OK\r\n\r\nsome").await;
    client
        .expect("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nsome")
        .await;
    server.send(" more").await;
    drop(server);
    assert_eq!(client.rest().await, " more");
}

#[tokio::test]
async fn events_are_not_held_back() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let (mut client, mut server) =
        asked(&setup, &origin, "GET", "Accept: text/event-stream\r\n").await;
    server.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.head().await;
    for number in 0..20 {
        let event = format!("data: {number}\n\n");
        let sent = Instant::now();
        server
            .send(format!("{:x}\r\n{event}\r\n", event.len()))
            .await;
        client.until(&format!("{event}\r\n")).await;
        assert!(
            sent.elapsed() < Duration::from_millis(100),
            "held back for {:?}",
            sent.elapsed()
        );
    }
}

#[tokio::test]
async fn an_upload_larger_than_every_buffer_arrives_whole() {
    const LENGTH: usize = 48 * 1024 * 1024;
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let lines = format!("Content-Length: {LENGTH}\r\n");
    let (client, server) = asked(&setup, &origin, "POST", &lines).await;
    let block: Vec<u8> = (0..=250).cycle().take(251 * 1024).collect();
    let (mut client_read, mut client_write) = client.socket.into_split();
    let (mut server_read, mut server_write) = server.socket.into_split();
    let send = async {
        let mut left = LENGTH;
        while left > 0 {
            let count = left.min(block.len());
            client_write.write_all(&block[..count]).await.unwrap();
            left -= count;
        }
    };
    let receive = async {
        let mut buffer = vec![0; 251 * 1024];
        let mut left = LENGTH;
        while left > 0 {
            let count = left.min(buffer.len());
            server_read.read_exact(&mut buffer[..count]).await.unwrap();
            assert!(buffer[..count] == block[..count], "bytes differ");
            left -= count;
        }
        server_write
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await
            .unwrap();
    };
    tokio::time::timeout(Duration::from_mins(1), async {
        tokio::join!(send, receive)
    })
    .await
    .unwrap();
    let mut answer = [0; 15];
    soon(client_read.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_conversation_within_one_exchange_flows_both_ways() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let (mut client, mut server) =
        asked(&setup, &origin, "POST", "Transfer-Encoding: chunked\r\n").await;
    server
        .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    assert!(client.head().await.contains("Connection: close\r\n"));
    for _ in 0..3 {
        client.send("1\r\na\r\n").await;
        server.expect("1\r\na\r\n").await;
        server.send("1\r\nb\r\n").await;
        client.expect("1\r\nb\r\n").await;
    }
    // The response ends first; the rest of the request still arrives.
    server.send("0\r\n\r\n").await;
    client.expect("0\r\n\r\n").await;
    client.send("1\r\nc\r\n0\r\n\r\n").await;
    server.expect("1\r\nc\r\n0\r\n\r\n").await;
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn an_early_refusal_reaches_a_client_that_keeps_sending() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let lines = format!("Content-Length: {}\r\n", 16 * 1024 * 1024);
    let (mut client, mut server) = asked(&setup, &origin, "POST", &lines).await;
    server
        .send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        .await;
    drop(server);
    for _ in 0..16 {
        client.send(vec![0; 1024 * 1024]).await;
    }
    let (head, body) = client.answer().await;
    assert!(head.starts_with("HTTP/1.1 413 ") && body == "big");
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn a_malformed_chunk_from_the_client_ends_the_request() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let (mut client, mut server) =
        asked(&setup, &origin, "POST", "Transfer-Encoding: chunked\r\n").await;
    client.send("1\r\na\r\nzz\r\n").await;
    let (head, body) = client.answer().await;
    assert!(head.starts_with("HTTP/1.1 400 ") && body.contains("chunk size"));
    server.expect_reset().await;
}

#[tokio::test]
async fn a_response_that_breaks_off_is_never_taken_for_a_whole_one() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    for (head, reset) in [
        ("Content-Length: 9\r\n", false),
        ("Transfer-Encoding: chunked\r\n", false),
        ("X-Until: close\r\n", true),
    ] {
        let (mut client, mut server) = asked(&setup, &origin, "GET", "").await;
        server.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n5")).await;
        client.head().await;
        client.expect("5").await;
        if reset {
            server.reset();
        } else {
            drop(server);
        }
        client.expect_reset().await;
    }
}
