//! Carriers between a connector and a small server half, over real sockets, with and without trouble on the way.

mod middlebox;
#[cfg(unix)]
mod nginx;
mod server;

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use yonder_transport::carrier::{Carrier, CarrierKind, Connect as _, ConnectError};
use yonder_transport::connect::{AuthHeader, Connector, ConnectorConfig};
use yonder_transport::tls::TlsOptions;
use yonder_transport::token::SecretToken;

use middlebox::{Act, Middlebox};
use server::{Identity, Server, TOKEN};

fn config(address: &str) -> ConnectorConfig {
    ConnectorConfig {
        address: address.parse().expect("a valid address"),
        token: SecretToken::new(TOKEN).expect("valid"),
        tls: TlsOptions::default(),
        headers: Vec::new(),
        auth_header: AuthHeader::default(),
        force: None,
    }
}

fn plain(address: SocketAddr) -> ConnectorConfig {
    config(&format!("http://{address}/some/prefix"))
}

fn connector(config: ConnectorConfig) -> Connector {
    Connector::new(config).expect("a valid configuration")
}

async fn refused(config: ConnectorConfig) -> ConnectError {
    connector(config).connect().await.expect_err("no carrier")
}

/// Sends `length` bytes each way at once, in uneven pieces, and checks them; then closes from `near`'s side.
async fn exercise(near: Carrier, far: Carrier, length: usize) {
    let (mut near_reader, mut near_writer) = tokio::io::split(near.io);
    let (mut far_reader, mut far_writer) = tokio::io::split(far.io);
    let bytes = |seed: u8| -> Vec<u8> { (seed..=250).cycle().take(length).collect() };
    let (up, down) = (bytes(3), bytes(90));
    let send_up = async {
        for piece in up.chunks(77_777) {
            near_writer.write_all(piece).await.expect("writes up");
        }
        near_writer.flush().await.expect("flushes");
    };
    let send_down = async {
        for piece in down.chunks(99_999) {
            far_writer.write_all(piece).await.expect("writes down");
        }
        far_writer.flush().await.expect("flushes");
    };
    let receive_up = async {
        let mut got = vec![0; length];
        far_reader.read_exact(&mut got).await.expect("reads up");
        assert!(got == up, "bytes differ on the way up");
    };
    let receive_down = async {
        let mut got = vec![0; length];
        near_reader.read_exact(&mut got).await.expect("reads down");
        assert!(got == down, "bytes differ on the way down");
    };
    tokio::join!(send_up, send_down, receive_up, receive_down);

    let close = async {
        near_writer.write_all(b"last words").await.expect("writes");
        near_writer.shutdown().await.expect("closes");
    };
    let hear = async {
        let mut last = Vec::new();
        far_reader
            .read_to_end(&mut last)
            .await
            .expect("an orderly end");
        assert_eq!(last, b"last words");
    };
    tokio::join!(close, hear);
}

#[tokio::test]
async fn a_websocket_over_tcp() {
    let mut server = Server::plain().await;
    let near = connector(plain(server.address))
        .connect()
        .await
        .expect("a carrier");
    assert_eq!(near.kind, CarrierKind::WebSocket);
    assert_eq!(near.description, "WebSocket over TCP");
    let far = server.carrier().await;
    exercise(near, far, 3_000_000).await;
    assert_eq!(
        server.seen(),
        [(Method::GET, "/some/prefix/link".to_owned(), true)]
    );
}

#[tokio::test]
async fn a_websocket_over_tls_with_an_authority_from_a_file() {
    let identity = Identity::new("localhost");
    let mut server = Server::tls(&identity).await;
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(identity.certificate.pem().as_bytes())
        .expect("writes");
    let mut config = config(&format!("https://localhost:{}", server.address.port()));
    config.tls.ca_file = Some(file.path().to_owned());
    let near = connector(config).connect().await.expect("a carrier");
    assert_eq!(near.description, "WebSocket over TLS 1.3");
    let far = server.carrier().await;
    exercise(near, far, 3_000_000).await;
}

#[tokio::test]
async fn a_pinned_key_needs_no_authority_and_no_name() {
    let identity = Identity::new("another.example");
    let mut server = Server::tls(&identity).await;
    let mut config = config(&format!("https://{}", server.address));
    config.tls.pins = vec![Identity::new("other").pin(), identity.pin()];
    config.force = Some(CarrierKind::Poll);
    let near = connector(config).connect().await.expect("a carrier");
    assert_eq!(near.description, "HTTP requests over TLS 1.3 (as set)");
    let far = server.carrier().await;
    exercise(near, far, 200_000).await;
}

#[tokio::test]
async fn an_untrusted_certificate_is_reported_with_its_pin() {
    let identity = Identity::new("localhost");
    let server = Server::tls(&identity).await;
    let address = format!("https://localhost:{}", server.address.port());
    let error = refused(config(&address)).await;
    let text = error.to_string();
    assert!(matches!(error, ConnectError::Untrusted { .. }), "{text}");
    assert!(
        text.contains(&format!("--pin {}", identity.pin())),
        "{text}"
    );

    let mut pinned = config(&address);
    pinned.tls.pins = vec![Identity::new("other").pin()];
    assert!(
        refused(pinned)
            .await
            .to_string()
            .contains("not the pinned one")
    );
    assert!(server.seen().is_empty(), "nothing was sent before trust");
}

#[tokio::test]
async fn a_name_that_the_certificate_does_not_hold_is_reported() {
    let identity = Identity::new("another.example");
    let server = Server::tls(&identity).await;
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(identity.certificate.pem().as_bytes())
        .expect("writes");
    let mut config = config(&format!("https://localhost:{}", server.address.port()));
    config.tls.ca_file = Some(file.path().to_owned());
    assert!(
        refused(config)
            .await
            .to_string()
            .contains("issued for another name")
    );
}

#[tokio::test]
async fn tls_to_a_plain_port_is_reported() {
    let server = Server::plain().await;
    let error = refused(config(&format!("https://{}", server.address))).await;
    assert!(matches!(error, ConnectError::Tls { .. }), "{error}");
    assert!(error.to_string().contains("http://"), "{error}");
}

#[tokio::test]
async fn a_wrong_token_is_reported_and_not_tried_otherwise() {
    let server = Server::plain().await;
    let mut config = plain(server.address);
    config.token = SecretToken::new("wrong").expect("valid");
    let error = refused(config).await;
    assert!(error.is_refused(), "{error}");
    assert!(!error.to_string().contains("wrong"), "{error}");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn the_token_may_leave_authorization_to_a_proxy() {
    let mut server = Server::plain().await;
    let mut config = plain(server.address);
    let basic = (
        HeaderName::from_static("authorization"),
        HeaderValue::from_static("Basic Zm9vOmJhcg=="),
    );
    config.headers = vec![basic];
    let error = Connector::new(config.clone()).expect_err("two for one header");
    assert!(error.is_configuration());
    config.auth_header = AuthHeader::YonderToken;
    let near = connector(config).connect().await.expect("a carrier");
    exercise(near, server.carrier().await, 1000).await;
}

#[tokio::test]
async fn headers_of_the_protocol_cannot_be_added() {
    for name in [
        "host",
        "upgrade",
        "sec-websocket-key",
        "yonder-carrier",
        "content-length",
    ] {
        let mut config = config("http://localhost");
        config.headers = vec![(HeaderName::from_static(name), HeaderValue::from_static("x"))];
        assert!(Connector::new(config).expect_err(name).is_configuration());
    }
    let mut config = config("http://localhost");
    let long = HeaderValue::try_from("x".repeat(3000)).expect("valid");
    config.headers = vec![(HeaderName::from_static("x-long"), long)];
    assert!(
        Connector::new(config)
            .expect_err("too long")
            .is_configuration()
    );
}

#[tokio::test]
async fn plain_requests_where_the_upgrade_is_stripped() {
    let mut server = Server::plain().await;
    let proxy = Middlebox::before(server.address, |_, _, _| Act::Pass).await;
    let connector = connector(plain(proxy.address));
    for attempt in 0..2 {
        let near = connector.connect().await.expect("a carrier");
        assert_eq!(near.kind, CarrierKind::Poll);
        assert_eq!(
            near.description,
            "HTTP requests over TCP (the WebSocket upgrade was answered with status 426)"
        );
        let far = server.carrier().await;
        exercise(near, far, 3_000_000).await;
        assert_eq!(
            server.count(&Method::GET),
            1,
            "attempt {attempt} knows what passes"
        );
    }
}

#[tokio::test]
async fn plain_requests_with_all_kinds_of_trouble() {
    let mut server = Server::plain().await;
    let proxy = Middlebox::before(server.address, |number, head, _| {
        if head
            .headers
            .get("yonder-carrier")
            .is_none_or(|id| id == "open")
        {
            return Act::Pass;
        }
        match number % 11 {
            3 => Act::Twice,
            5 => Act::LoseAnswer(502),
            7 => Act::Answer(503, "busy"),
            9 => Act::Break,
            10 => Act::LoseAnswer(504),
            _ => Act::Pass,
        }
    })
    .await;
    let near = connector(plain(proxy.address))
        .connect()
        .await
        .expect("a carrier");
    let far = server.carrier().await;
    exercise(near, far, 2_000_000).await;
}

#[tokio::test]
async fn bodies_shrink_to_what_passes() {
    let mut server = Server::plain().await;
    let proxy = Middlebox::before(server.address, |_, _, length| {
        if length > 20_000 {
            Act::Answer(413, "too large")
        } else {
            Act::Pass
        }
    })
    .await;
    let mut config = plain(proxy.address);
    config.force = Some(CarrierKind::Poll);
    let near = connector(config).connect().await.expect("a carrier");
    let far = server.carrier().await;
    exercise(near, far, 300_000).await;
}

#[tokio::test]
async fn plain_requests_where_only_the_upgrade_is_forbidden() {
    let mut server = Server::plain().await;
    let proxy = Middlebox::before(server.address, |_, head, _| {
        if head.method == Method::GET {
            Act::Answer(403, "no")
        } else {
            Act::Pass
        }
    })
    .await;
    let near = connector(plain(proxy.address))
        .connect()
        .await
        .expect("a carrier");
    assert!(
        near.description.ends_with("status 403)"),
        "{}",
        near.description
    );
    exercise(near, server.carrier().await, 1000).await;
}

#[tokio::test]
async fn plain_requests_where_frames_are_swallowed() {
    let mut server = Server::plain().await;
    let proxy = Middlebox::before(server.address, |_, head, _| {
        if head.method == Method::GET {
            Act::Swallow
        } else {
            Act::Pass
        }
    })
    .await;
    let started = Instant::now();
    let near = connector(plain(proxy.address))
        .connect()
        .await
        .expect("a carrier");
    assert_eq!(near.kind, CarrierKind::Poll);
    assert!(started.elapsed() < Duration::from_secs(9));
    exercise(near, server.carrier().await, 1000).await;
}

#[tokio::test]
async fn a_better_carrier_is_offered_once_it_passes() {
    let mut server = Server::plain().await;
    let connector = connector(plain(server.address));
    let mut near = connector.improve(CarrierKind::Poll).await;
    assert_eq!(near.kind, CarrierKind::WebSocket);
    let mut far = server.carrier().await;
    // The proof has left nothing behind.
    near.io.write_u8(1).await.expect("writes");
    near.io.flush().await.expect("flushes");
    assert_eq!(far.io.read_u8().await.expect("reads"), 1);
    exercise(near, far, 100_000).await;
}

#[tokio::test]
async fn a_forced_websocket_is_not_replaced() {
    let server = Server::plain().await;
    let proxy = Middlebox::before(server.address, |_, _, _| Act::Pass).await;
    let mut config = plain(proxy.address);
    config.force = Some(CarrierKind::WebSocket);
    let error = refused(config).await;
    assert!(error.to_string().contains("proxy_set_header"), "{error}");
    assert_eq!(server.count(&Method::POST), 0);

    let mut stdio = plain(server.address);
    stdio.force = Some(CarrierKind::Stdio);
    assert!(
        Connector::new(stdio)
            .expect_err("no such choice")
            .is_configuration()
    );
}

#[tokio::test]
async fn answers_of_others_are_reported() {
    let server = Server::plain().await;
    for (status, page, expected) in [
        (
            200,
            "<title>Hotel Wi-Fi</title>",
            "page title \"Hotel Wi-Fi\"",
        ),
        (404, "nothing here", "check the address and its path"),
        (502, "bad gateway", "is tunnel-server running behind it?"),
    ] {
        let proxy =
            Middlebox::before(server.address, move |_, _, _| Act::Answer(status, page)).await;
        let error = refused(plain(proxy.address)).await;
        assert!(error.is_unreachable(), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    for status in [401, 403] {
        let proxy = Middlebox::before(server.address, move |_, _, _| Act::Answer(status, "")).await;
        let error = refused(plain(proxy.address)).await;
        assert!(error.is_refused(), "{error}");
        assert!(
            error.to_string().contains("something in front of it"),
            "{error}"
        );
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn the_end_of_the_servers_side_is_told() {
    let mut server = Server::plain().await;
    for force in [CarrierKind::WebSocket, CarrierKind::Poll] {
        let mut config = plain(server.address);
        config.force = Some(force);
        let mut near = connector(config).connect().await.expect("a carrier");
        let mut far = server.carrier().await;
        far.io.write_all(b"good night").await.expect("writes");
        far.io.shutdown().await.expect("closes");
        drop(far);
        let mut got = Vec::new();
        near.io.read_to_end(&mut got).await.expect("an orderly end");
        assert_eq!(got, b"good night");
    }
}

#[tokio::test]
async fn a_poll_carrier_that_the_server_forgot_fails_with_the_reason() {
    let mut server = Server::plain().await;
    let mut config = plain(server.address);
    config.force = Some(CarrierKind::Poll);
    let proxy = Middlebox::before(server.address, |number, _, _| {
        if number == 0 {
            Act::Pass
        } else {
            Act::Answer(410, "gone")
        }
    })
    .await;
    config.address = plain(proxy.address).address;
    let mut near = connector(config).connect().await.expect("a carrier");
    let _far = server.carrier().await;
    let error = near.io.read_u8().await.expect_err("gone");
    assert!(error.to_string().contains("status 410"), "{error}");
}

#[tokio::test]
async fn small_messages_do_not_wait() {
    let mut server = Server::plain().await;
    for force in [CarrierKind::WebSocket, CarrierKind::Poll] {
        let mut config = plain(server.address);
        config.force = Some(force);
        let mut near = connector(config).connect().await.expect("a carrier");
        let mut far = server.carrier().await;
        let started = Instant::now();
        for i in 0..50 {
            near.io.write_u8(i).await.expect("writes");
            near.io.flush().await.expect("flushes");
            assert_eq!(far.io.read_u8().await.expect("reads"), i);
            far.io.write_u8(i).await.expect("writes");
            far.io.flush().await.expect("flushes");
            assert_eq!(near.io.read_u8().await.expect("reads"), i);
        }
        assert!(
            started.elapsed() < Duration::from_secs(2),
            "{force}: {:?}",
            started.elapsed()
        );
    }
}

#[tokio::test]
async fn single_requests_reach_the_server_and_only_it() {
    let server = Server::plain().await;
    let limit = Duration::from_secs(5);
    let ours = connector(plain(server.address));
    let body = Bytes::from_static(b"{\"a\":1}");
    let answer = ours
        .request(Method::POST, "echo", Some(body.clone()), limit)
        .await
        .expect("an answer");
    assert_eq!(answer.into_body(), body);
    let missing = ours
        .request(Method::GET, "nowhere", None, limit)
        .await
        .expect("an answer");
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);

    let proxy = Middlebox::before(server.address, |_, _, _| {
        Act::Answer(200, "<title>Login</title>")
    })
    .await;
    let error = connector(plain(proxy.address))
        .request(Method::GET, "healthz", None, limit)
        .await
        .expect_err("not ours");
    assert!(
        matches!(error, ConnectError::NotOurServer { .. }),
        "{error}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn behind_nginx() {
    for (lines, kind) in [
        (nginx::PLAIN, CarrierKind::Poll),
        (nginx::WEBSOCKET, CarrierKind::WebSocket),
        (nginx::STRICT, CarrierKind::Poll),
    ] {
        let mut server = Server::plain().await;
        let Some(proxy) = nginx::Nginx::before(server.address, lines).await else {
            println!("nginx is not installed; nothing was tested");
            return;
        };
        let near = connector(plain(proxy.address))
            .connect()
            .await
            .expect("a carrier");
        assert_eq!(near.kind, kind, "with {lines:?}");
        let started = Instant::now();
        exercise(near, server.carrier().await, 4_000_000).await;
        println!(
            "{kind} behind nginx with {lines:?}: 4 MB each way in {:?}",
            started.elapsed()
        );
    }
}

/// `0.0.0.0` reaches this machine on Linux without being a loopback address.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_redirect_to_tls_is_followed_before_the_token_is_sent() {
    let identity = Identity::new("any.example");
    let mut server = Server::tls(&identity).await;
    let secured = format!("https://0.0.0.0:{}/p/healthz", server.address.port());
    let redirect = redirecting(secured).await;
    let mut config = config(&format!("http://0.0.0.0:{}/p", redirect.0.port()));
    config.tls.pins = vec![identity.pin()];
    let connector = connector(config);
    let near = connector.connect().await.expect("a carrier");
    assert_eq!(near.description, "WebSocket over TLS 1.3");
    assert!(connector.address().is_secure());
    exercise(near, server.carrier().await, 1000).await;
}

/// A port that redirects everything to one place and fails the test when it is shown the token.
#[cfg(target_os = "linux")]
async fn redirecting(to: String) -> (SocketAddr, tokio::task::JoinSet<()>) {
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0")
        .await
        .expect("binds");
    let address = listener.local_addr().expect("bound");
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let (mut tcp, _) = listener.accept().await.expect("accepts");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(tcp.read_u8().await.expect("reads"));
        }
        let leaked = request
            .windows(TOKEN.len())
            .any(|window| window == TOKEN.as_bytes());
        let status = if leaked {
            "200 OK"
        } else {
            "301 Moved Permanently"
        };
        let answer = format!("HTTP/1.1 {status}\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
        tcp.write_all(answer.as_bytes()).await.expect("writes");
    });
    (address, tasks)
}
