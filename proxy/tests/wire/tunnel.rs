//! `CONNECT`: early data, the ends of both directions, resets, and what is remembered of targets.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use yonder_protocol::{Target, TunnelErrorCode};
use yonder_proxy::DialMode;

use crate::support::{Origin, Setup, closed_port, soon};

#[tokio::test]
async fn early_data_follows_the_open() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let mut client = setup.client().await;
    let connect = setup.request(&format!("CONNECT {}", origin.authority), "");
    client.send(connect + "early").await;
    let mut server = origin.accept().await;
    server.expect("early").await;
    client
        .expect("HTTP/1.1 200 Connection Established\r\n\r\n")
        .await;
    server.send("answer").await;
    client.expect("answer").await;
}

#[tokio::test]
async fn a_client_may_end_its_side_first() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let (mut client, mut server) = setup.tunnel(&origin).await;
    client.send("question").await;
    client.finish().await;
    assert_eq!(server.rest().await, "question");
    // Longer than a plain request would be served after that.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    server.send("answer").await;
    drop(server);
    assert_eq!(client.rest().await, "answer");
    setup
        .record
        .until(|record| record.open.load(Ordering::SeqCst) == 0)
        .await;
}

#[tokio::test]
async fn a_target_may_end_its_side_first() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let (mut client, mut server) = setup.tunnel(&origin).await;
    server.send("banner").await;
    server.finish().await;
    assert_eq!(client.rest().await, "banner");
    client.send("late").await;
    client.finish().await;
    assert_eq!(server.rest().await, "late");
}

#[tokio::test]
async fn everything_may_be_sent_before_the_verdict() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let mut client = setup.client().await;
    let connect = setup.request(&format!("CONNECT {}", origin.authority), "");
    client.send(connect + "all").await;
    client.finish().await;
    let mut server = origin.accept().await;
    assert_eq!(server.rest().await, "all");
    server.send("done").await;
    drop(server);
    assert!(client.rest().await.ends_with("\r\n\r\ndone"));
}

#[tokio::test]
async fn resets_pass_in_both_directions() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let (mut client, server) = setup.tunnel(&origin).await;
    server.reset();
    client.expect_reset().await;

    let (client, mut server) = setup.tunnel(&origin).await;
    client.reset();
    server.expect_reset().await;
}

#[tokio::test]
async fn a_flood_in_one_direction_does_not_silence_the_other() {
    const LENGTH: usize = 32 * 1024 * 1024;
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let (client, server) = setup.tunnel(&origin).await;
    let (mut client_read, mut client_write) = client.socket.into_split();
    let (mut server_read, mut server_write) = server.socket.into_split();
    let flood = async {
        let block = vec![7; 256 * 1024];
        for _ in 0..LENGTH / block.len() {
            server_write.write_all(&block).await.unwrap();
        }
    };
    let drain = async {
        let mut buffer = vec![0; 256 * 1024];
        let mut left = LENGTH;
        while left > 0 {
            left -= client_read.read(&mut buffer).await.unwrap();
        }
    };
    let talk = async {
        for number in 0..50u8 {
            client_write.write_all(&[number]).await.unwrap();
            assert_eq!(server_read.read_u8().await.unwrap(), number);
        }
    };
    tokio::time::timeout(Duration::from_mins(1), async {
        tokio::join!(flood, drain, talk)
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn targets_that_answered_lately_are_opened_optimistically() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let target: Target = origin.authority.parse().unwrap();
    setup.tunnel(&origin).await;
    setup.tunnel(&origin).await;
    let modes: Vec<_> = setup
        .record
        .dials()
        .into_iter()
        .map(|dial| dial.2)
        .collect();
    assert_eq!(modes, [DialMode::Verdict, DialMode::Optimistic]);
    assert_eq!(setup.proxy.last_failure(&target), None);

    // It went away: the next client is told 200 and then a reset, and those after it the truth.
    drop(origin);
    let mut client = setup.client().await;
    let connect = setup.request(&format!("CONNECT {target}"), "");
    client.send(&connect).await;
    client.expect_reset().await;
    assert_eq!(
        setup.proxy.last_failure(&target).unwrap().code,
        TunnelErrorCode::Refused
    );
    let mut client = setup.client().await;
    client.send(&connect).await;
    assert!(client.answer().await.0.starts_with("HTTP/1.1 502 "));
}

#[tokio::test]
async fn a_failed_tunnel_is_told_and_remembered() {
    let setup = Setup::new().await;
    let authority = closed_port().await;
    let mut client = setup.client().await;
    client
        .send(setup.request(&format!("CONNECT {authority}"), ""))
        .await;
    let (head, body) = client.answer().await;
    assert!(head.starts_with("HTTP/1.1 502 ") && body.contains("connection refused"));
    assert_eq!(client.rest().await, "");
    let failure = setup
        .proxy
        .last_failure(&authority.parse().unwrap())
        .unwrap();
    assert_eq!(failure.code, TunnelErrorCode::Refused);
}

#[tokio::test]
async fn a_client_that_leaves_aborts_its_dial() {
    let setup = Setup::new().await;
    for reset in [true, false] {
        let mut client = setup.client().await;
        client.send(setup.request("CONNECT hang.test:1", "")).await;
        setup
            .record
            .until(|record| record.pending.load(Ordering::SeqCst) == 1)
            .await;
        if reset {
            client.reset();
        } else {
            drop(client);
        }
        setup
            .record
            .until(|record| record.pending.load(Ordering::SeqCst) == 0)
            .await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_request() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    for begun in [false, true] {
        let mut client = setup.client().await;
        client
            .send(setup.request(&format!("GET {}", origin.url("/")), ""))
            .await;
        let mut server = origin.accept().await;
        server.head().await;
        if begun {
            server
                .send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome")
                .await;
            client.head().await;
        }
        drop(client);
        server.expect_reset().await;
    }
    soon(setup.proxy.close()).await;
}

#[tokio::test]
async fn a_half_closed_client_still_gets_a_prompt_answer() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let mut client = setup.client().await;
    client
        .send(setup.request(&format!("GET {}", origin.url("/")), ""))
        .await;
    client.finish().await;
    let mut server = origin.accept().await;
    server.head().await;
    server
        .send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .await;
    assert!(client.rest().await.ends_with("\r\n\r\nok"));
}

#[tokio::test]
async fn a_target_that_takes_nothing_more_is_still_heard() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let port = origin.authority.rsplit_once(':').unwrap().1;
    let mut client = setup.client().await;
    client
        .send(setup.request(&format!("CONNECT deaf.test:{port}"), ""))
        .await;
    let mut server = origin.accept().await;
    client.head().await;
    // More than the sockets hold: the client gets round to reading only when all of it is taken.
    client.send(vec![0; 16 * 1024 * 1024]).await;
    server.send("last words").await;
    drop(server);
    client.expect("last words").await;
}
