//! The listener and the life of connections: limits, removal of sessions, closing.

use std::sync::atomic::Ordering;

use tokio::net::TcpStream;
use yonder_proxy::{Challenge, ProxyConfig};

use crate::support::{Origin, Setup, soon};

#[tokio::test]
async fn closing_cuts_every_connection_and_frees_the_port() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let (mut tunnel, mut tunnel_end) = setup.tunnel(&origin).await;
    let mut waiting = setup.client().await;
    waiting
        .send(setup.request(&format!("GET {}", origin.url("/")), ""))
        .await;
    let mut waiting_end = origin.accept().await;
    waiting_end.head().await;
    let mut dialling = setup.client().await;
    dialling
        .send(setup.request("CONNECT hang.test:1", ""))
        .await;
    setup
        .record
        .until(|record| record.pending.load(Ordering::SeqCst) == 1)
        .await;

    soon(setup.proxy.close()).await;
    assert_eq!(setup.record.open.load(Ordering::SeqCst), 0);
    for client in [&mut tunnel, &mut waiting, &mut dialling] {
        client.expect_reset().await;
    }
    tunnel_end.expect_reset().await;
    waiting_end.expect_reset().await;
    assert!(TcpStream::connect(setup.proxy.local_addr()).await.is_err());
    soon(setup.proxy.close()).await;
}

#[tokio::test]
async fn dropping_a_proxy_cuts_its_connections() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let (mut client, mut server) = setup.tunnel(&origin).await;
    drop(setup);
    client.expect_reset().await;
    server.expect_reset().await;
}

#[tokio::test]
async fn removing_a_session_cuts_its_connections_and_no_others() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let (mut client, mut server) = setup.tunnel(&origin).await;
    // An idle connection to the target is let go of as well.
    let mut idle = setup.client().await;
    idle.send(setup.request(&format!("GET {}", origin.url("/")), ""))
        .await;
    let mut idle_end = origin.accept().await;
    idle_end.head().await;
    idle_end.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    idle.head().await;

    setup.proxy.add_session("other");
    client.send("a").await;
    server.expect("a").await;
    setup.proxy.remove_session("default");
    client.expect_reset().await;
    server.expect_reset().await;
    assert_eq!(idle.rest().await, "");
    idle_end.expect_reset().await;
    assert_eq!(setup.record.open.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn pooled_connections_end_with_their_session() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let mut client = setup.client().await;
    client
        .send(setup.request(&format!("GET {}", origin.url("/")), "Connection: close\r\n"))
        .await;
    let mut server = origin.accept().await;
    server.head().await;
    server.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    client.rest().await;
    setup.proxy.remove_session("default");
    server.expect_reset().await;
}

#[tokio::test]
async fn one_client_too_many_is_turned_away() {
    let mut config = ProxyConfig::new(Challenge::Always);
    config.connections = 1;
    let setup = Setup::with(config).await;
    let origin = Origin::new().await;
    let (client, _server) = setup.tunnel(&origin).await;
    let mut second = setup.client().await;
    assert!(second.rest().await.starts_with("HTTP/1.1 503 "));
    // Its place is free again once the first has gone.
    client.reset();
    setup
        .record
        .until(|record| record.open.load(Ordering::SeqCst) == 0)
        .await;
    soon(async {
        loop {
            let mut next = setup.client().await;
            if next
                .try_send(setup.request("GET http://prime.invalid/", "Connection: close\r\n"))
                .await
                && next
                    .try_rest()
                    .await
                    .is_some_and(|text| text.starts_with("HTTP/1.1 204 "))
            {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn hundreds_of_tunnels_live_side_by_side() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let mut pairs = Vec::new();
    for _ in 0..300 {
        pairs.push(setup.tunnel(&origin).await);
    }
    for (number, (client, server)) in pairs.iter_mut().enumerate() {
        let text = format!("{number:04}");
        client.send(&text).await;
        server.expect(&text).await;
        server.send(&text).await;
        client.expect(&text).await;
    }
    soon(setup.proxy.close()).await;
    assert_eq!(setup.record.open.load(Ordering::SeqCst), 0);
}
