//! Plain HTTP: what reaches the target, what comes back, and how connections are kept.

use std::sync::atomic::Ordering;

use yonder_proxy::{Challenge, ProxyConfig};

use crate::support::{Origin, Setup};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn a_request_arrives_in_origin_form_and_its_answer_as_it_was_sent() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let mut client = setup.client().await;
    client
        .send(setup.request(
            &format!("GET {}", origin.url("/a?b=c")),
            "Host: wrong\r\nProxy-Connection: keep-alive\r\nConnection: x-hop\r\nX-Hop: 1\r\nTE: trailers\r\nX-End: 2\r\n",
        ))
        .await;
    let mut server = origin.accept().await;
    let expected = format!(
        "GET /a?b=c HTTP/1.1\r\nHost: {}\r\nX-End: 2\r\n\r\n",
        origin.authority
    );
    assert_eq!(server.head().await, expected);
    server
        .send("HTTP/1.1 200 Fine\r\nX-A: 1\r\nConnection: x-b\r\nX-B: 2\r\nProxy-Authenticate: Basic\r\nContent-Length: 2\r\n\r\nok")
        .await;
    client
        .expect("HTTP/1.1 200 Fine\r\nX-A: 1\r\nContent-Length: 2\r\n\r\nok")
        .await;
}

#[tokio::test]
async fn a_thousand_requests_share_one_connection_on_both_sides() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let mut client = setup.client().await;
    let request = setup.request(&format!("GET {}", origin.url("/")), "");
    client.send(&request).await;
    let mut server = origin.accept().await;
    for _ in 0..1_000 {
        server.head().await;
        server.send(OK).await;
        client.expect(OK).await;
        client.send(&request).await;
    }
    assert_eq!(setup.record.count(), 1);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let mut client = setup.client().await;
    let body = "Content-Length: 3\r\n";
    let all = [
        setup.request(&format!("GET {}", origin.url("/1")), ""),
        setup.request(&format!("POST {}", origin.url("/2")), body) + "abc",
        setup.request(
            &format!("GET {}", origin.url("/3")),
            "Connection: close\r\n",
        ),
    ]
    .concat();
    client.send(all).await;
    let mut server = origin.accept().await;
    for (path, body) in [("/1", ""), ("/2", "abc"), ("/3", "")] {
        assert!(server.head().await.contains(&format!(" {path} ")));
        server.expect(body).await;
        server
            .send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{path}"
            ))
            .await;
    }
    for path in ["/1", "/2"] {
        assert_eq!(client.answer().await.1, path);
    }
    let rest = client.rest().await;
    assert!(rest.contains("Connection: close\r\n") && rest.ends_with("/3"));
}

#[tokio::test]
async fn an_idle_connection_serves_the_next_client() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let request = setup.request(&format!("GET {}", origin.url("/")), "Connection: close\r\n");
    let mut client = setup.client().await;
    client.send(&request).await;
    let mut server = origin.accept().await;
    server.head().await;
    server.send(OK).await;
    client.rest().await;
    for _ in 0..3 {
        let mut client = setup.client().await;
        client.send(&request).await;
        server.head().await;
        server.send(OK).await;
        client.rest().await;
    }
    assert_eq!(setup.record.count(), 1);
}

#[tokio::test]
async fn sessions_never_share_a_connection() {
    let setup = Setup::new().await;
    let other = setup.proxy.add_session("other");
    let origin = Origin::new().await;
    let line = format!("GET {}", origin.url("/"));
    let mut client = setup.client().await;
    client.send(setup.request(&line, "")).await;
    let mut server = origin.accept().await;
    server.head().await;
    server.send(OK).await;
    client.expect(OK).await;

    // The same client connection, another credential.
    let auth = crate::support::basic(&other);
    client
        .send(format!(
            "{line} HTTP/1.1\r\nProxy-Authorization: {auth}\r\n\r\n"
        ))
        .await;
    let mut second = origin.accept().await;
    second.head().await;
    second.send(OK).await;
    client.expect(OK).await;
    let sessions: Vec<_> = setup
        .record
        .dials()
        .into_iter()
        .map(|dial| dial.0)
        .collect();
    assert_eq!(sessions, ["default", "other"]);
}

#[tokio::test]
async fn a_connection_that_the_target_closed_is_not_used_again() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let mut client = setup.client().await;
    let request = setup.request(&format!("GET {}", origin.url("/")), "");
    client.send(&request).await;
    let mut server = origin.accept().await;
    server.head().await;
    server.send(OK).await;
    client.expect(OK).await;
    drop(server);
    setup
        .record
        .until(|record| record.open.load(Ordering::SeqCst) == 0)
        .await;
    client.send(&request).await;
    let mut server = origin.accept().await;
    server.head().await;
    server.send(OK).await;
    client.expect(OK).await;
}

#[tokio::test]
async fn a_request_that_met_a_closing_connection_is_sent_again_if_it_may() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let mut client = setup.client().await;
    let get = setup.request(&format!("GET {}", origin.url("/")), "");
    client.send(&get).await;
    let mut server = origin.accept().await;
    server.head().await;
    server.send(OK).await;
    client.expect(OK).await;
    client.send(&get).await;
    server.head().await;
    drop(server);
    let mut server = origin.accept().await;
    server.head().await;
    server.send(OK).await;
    client.expect(OK).await;

    // It may have acted, so it is not repeated.
    let post = setup.request(
        &format!("POST {}", origin.url("/")),
        "Content-Length: 0\r\n",
    );
    client.send(&post).await;
    server.head().await;
    drop(server);
    let (head, _) = client.answer().await;
    assert!(head.starts_with("HTTP/1.1 502 ") && head.contains("Yonder-Error: no_response"));
    assert!(origin.is_untouched().await);
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_plain_bytes_until_the_end() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let mut client = setup.client().await;
    client
        .send(format!(
            "GET {} HTTP/1.0\r\n{}\r\n",
            origin.url("/"),
            setup.auth()
        ))
        .await;
    let mut server = origin.accept().await;
    assert!(server.head().await.starts_with("GET / HTTP/1.1\r\n"));
    server
        .send("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\n\r\n")
        .await;
    assert_eq!(
        client.rest().await,
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcde"
    );
}

#[tokio::test]
async fn names_and_both_families_are_reached() {
    let setup = Setup::new().await;
    for host in ["127.0.0.1", "::1"] {
        let origin = Origin::on(host).await;
        let mut client = setup.client().await;
        client
            .send(setup.request(&format!("GET {}", origin.url("/")), ""))
            .await;
        let mut server = origin.accept().await;
        assert!(
            server
                .head()
                .await
                .contains(&format!("Host: {}\r\n", origin.authority))
        );
        server.send(OK).await;
        client.expect(OK).await;
    }
    let origin = Origin::new().await;
    let port = origin.authority.rsplit_once(':').unwrap().1.to_owned();
    let mut client = setup.client().await;
    client
        .send(setup.request(&format!("GET http://localhost:{port}"), ""))
        .await;
    let mut server = origin.accept().await;
    assert_eq!(
        server.head().await,
        format!("GET / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n")
    );
}

#[tokio::test]
async fn a_plain_upgrade_becomes_a_raw_pipe() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let mut client = setup.client().await;
    let lines = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n";
    let request = setup.request(&format!("GET {}", origin.url("/ws")), lines);
    client.send(request + "early").await;
    let mut server = origin.accept().await;
    let head = server.head().await;
    assert!(head.contains("Connection: Upgrade\r\n") && head.contains("Upgrade: websocket\r\n"));
    let switch =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    server.send(format!("{switch}first")).await;
    client.expect(switch).await;
    client.expect("first").await;
    server.expect("early").await;
    client.send("ping").await;
    server.expect("ping").await;
    server.finish().await;
    assert_eq!(client.rest().await, "");
    client.send("still").await;
    client.finish().await;
    assert_eq!(server.rest().await, "still");
}

#[tokio::test]
async fn an_upgrade_may_be_declined() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let mut client = setup.client().await;
    let lines = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    client
        .send(setup.request(&format!("GET {}", origin.url("/")), lines))
        .await;
    let mut server = origin.accept().await;
    server.head().await;
    server.send(OK).await;
    client.expect(OK).await;
    client
        .send(setup.request(&format!("GET {}", origin.url("/")), ""))
        .await;
    assert!(!server.head().await.contains("Upgrade"));
}

#[tokio::test]
async fn a_primed_browser_is_recognised_afterwards() {
    let setup = Setup::with(ProxyConfig::new(Challenge::PrimingHostOnly)).await;
    let mut client = setup.client().await;
    client
        .send("GET http://prime.invalid/ HTTP/1.1\r\nHost: prime.invalid\r\n\r\n")
        .await;
    let (head, _) = client.answer().await;
    assert!(head.starts_with("HTTP/1.1 407 "));
    assert!(head.contains("Proxy-Authenticate: Basic realm=\"Yonder\""));
    client
        .send(setup.request("GET http://prime.invalid/", ""))
        .await;
    assert!(client.head().await.starts_with("HTTP/1.1 204 "));
    assert_eq!(setup.record.count(), 0);
    assert_eq!(*setup.proxy.unauthenticated().borrow(), 0);
}
