//! What is refused: with which answer, and without a dial.

use std::time::Duration;

use yonder_proxy::{Challenge, ProxyConfig};

use crate::support::{Setup, basic};

/// What the proxy answers to `request`; nothing may have been dialled and the connection must end.
async fn refusal(setup: &Setup, request: impl AsRef<[u8]>) -> String {
    let mut client = setup.client().await;
    client.send(request).await;
    let text = client.rest().await;
    assert_eq!(setup.record.count(), 0, "dialled for {text}");
    text
}

#[tokio::test]
async fn malformed_and_ambiguous_requests_get_400() {
    let setup = Setup::new().await;
    let auth = setup.auth();
    let get = |lines: &str| format!("GET http://h/ HTTP/1.1\r\n{auth}{lines}\r\n");
    let line = |line: &str| format!("{line}\r\n{auth}\r\n");
    for (request, says) in [
        (line("GET / HTTP/1.1"), "this address is an HTTP proxy"),
        (line("OPTIONS * HTTP/1.1"), "this address is an HTTP proxy"),
        (
            line("GET http://user:pass@h/ HTTP/1.1"),
            "user name or password",
        ),
        (line("GET http://user@h/ HTTP/1.1"), "user name or password"),
        (line("CONNECT user@h:1 HTTP/1.1"), "user name or password"),
        (line("GET https://h/ HTTP/1.1"), "only http://"),
        (line("GET ftp://h/ HTTP/1.1"), "only http://"),
        (line("GET ws://h/ HTTP/1.1"), "only http://"),
        (line("GET h HTTP/1.1"), "not an absolute"),
        (line("GET http://a_b\\c/ HTTP/1.1"), "host"),
        (line("GET http://h:0/ HTTP/1.1"), "port"),
        (line("GET http://h/ HTTP/3.0"), "HTTP/1.1"),
        (line("GET  http://h/ HTTP/1.1"), "request line"),
        (
            get("Content-Length: 1\r\nContent-Length: 1\r\n"),
            "more than once",
        ),
        (
            get("Content-Length: 1\r\nContent-Length: 2\r\n"),
            "more than once",
        ),
        (get("Content-Length: 1, 2\r\n"), "not a number"),
        (get("Content-Length: -1\r\n"), "not a number"),
        (
            get("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
            "exclude each other",
        ),
        (get("Transfer-Encoding: gzip\r\n"), "chunked alone"),
        (get("Host: a\r\nHost: b\r\n"), "more than once"),
        (get("A: b\nC: d\r\n"), "CR or LF"),
        (get("A: b\rC: d\r\n"), "CR or LF"),
        (get("A: b\r\n folded\r\n"), "folded"),
        (get("A : b\r\n"), "colon"),
        (get("A: \u{1}\r\n"), "malformed"),
        ("\u{16}\u{3}\u{1}".to_owned(), "not HTTP"),
    ] {
        let text = refusal(&setup, &request).await;
        assert!(
            text.starts_with("HTTP/1.1 400 Bad Request\r\n"),
            "{request:?}: {text}"
        );
        assert!(text.contains(says), "{request:?}: {text}");
        assert!(
            text.contains("Yonder-Error: bad_request\r\n")
                && text.contains("Connection: close\r\n")
        );
    }
}

#[tokio::test]
async fn oversized_heads_get_431() {
    let setup = Setup::new().await;
    for lines in [
        format!("A: {}\r\n", "b".repeat(64 * 1024)),
        "A: b\r\n".repeat(101),
    ] {
        let text = refusal(&setup, setup.request("GET http://h/", &lines)).await;
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    }
    // One that never ends is not waited for.
    let mut client = setup.client().await;
    client
        .send(format!(
            "GET http://h/{} HTTP/1.1\r\n",
            "a".repeat(65 * 1024)
        ))
        .await;
    assert!(client.rest().await.starts_with("HTTP/1.1 431 "));
}

#[tokio::test]
async fn a_head_that_does_not_come_whole_gets_408() {
    let mut config = ProxyConfig::new(Challenge::Always);
    config.head_timeout = Duration::from_millis(100);
    let setup = Setup::with(config).await;
    let text = refusal(&setup, "GET http://h/ HTTP/1.1\r\nA: ").await;
    assert!(text.starts_with("HTTP/1.1 408 "));
}

#[tokio::test]
async fn a_silent_connection_is_closed_in_the_end() {
    let mut config = ProxyConfig::new(Challenge::Always);
    config.idle_timeout = Duration::from_millis(100);
    let setup = Setup::with(config).await;
    assert_eq!(refusal(&setup, "").await, "");
}

#[tokio::test]
async fn missing_and_wrong_credentials_get_407_before_anything_is_dialled() {
    let setup = Setup::new().await;
    let right = basic(&setup.credential);
    let other = Setup::new().await;
    let mut client = setup.client().await;
    for value in [
        "",
        "Basic",
        "Basic eDp5",
        &right[..right.len() - 1],
        &format!("{right}a"),
        &basic(&other.credential),
    ] {
        client
            .send(format!(
                "GET http://h/ HTTP/1.1\r\nProxy-Authorization: {value}\r\n\r\n"
            ))
            .await;
        let (head, body) = client.answer().await;
        assert!(
            head.starts_with("HTTP/1.1 407 Proxy Authentication Required\r\n"),
            "{value}"
        );
        assert!(head.contains("Proxy-Authenticate: Basic realm=\"Yonder\""));
        assert!(body.contains("user name and password"));
    }
    for request in [
        "CONNECT h:1 HTTP/1.1\r\n\r\n",
        "POST http://h/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
    ] {
        let text = refusal(&setup, request).await;
        assert!(text.starts_with("HTTP/1.1 407 ") && text.contains("Connection: close\r\n"));
    }
    assert_eq!(setup.record.count(), 0);
}

#[tokio::test]
async fn a_removed_session_is_unknown() {
    let setup = Setup::new().await;
    setup.proxy.remove_session("default");
    let text = refusal(&setup, setup.request("CONNECT h:1", "")).await;
    assert!(text.starts_with("HTTP/1.1 407 "));
}

#[tokio::test]
async fn the_port_of_a_browser_challenges_the_priming_host_alone() {
    let setup = Setup::with(ProxyConfig::new(Challenge::PrimingHostOnly)).await;
    let lost = setup.proxy.unauthenticated();
    for request in [
        "GET http://h/ HTTP/1.1\r\n\r\n",
        "CONNECT h:1 HTTP/1.1\r\n\r\n",
    ] {
        let text = refusal(&setup, request).await;
        assert!(text.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{text}");
        assert!(text.contains("Connection: close\r\n") && !text.contains("Proxy-Authenticate"));
    }
    assert_eq!(*lost.borrow(), 2);

    let text = refusal(&setup, "GET http://prime.invalid/ HTTP/1.1\r\nProxy-Authorization: Basic eDp5\r\nConnection: close\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 407 "));
    // Browsers try https:// first. That is refused at once and does not count as a lost credential.
    let text = refusal(&setup, "CONNECT prime.invalid:443 HTTP/1.1\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 403 "));
    let text = refusal(&setup, setup.request("CONNECT prime.invalid:443", "")).await;
    assert!(text.starts_with("HTTP/1.1 502 "));
    assert_eq!(*lost.borrow(), 2);
}

#[tokio::test]
async fn a_realm_that_breaks_the_header_is_refused() {
    let mut config = ProxyConfig::new(Challenge::Always);
    config.realm = "a\"\r\nX: y".to_owned();
    let dial = Setup::new().await;
    let error = dial.restart(config).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}
