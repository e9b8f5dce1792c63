//! What a client is told when the target cannot be reached or does not answer properly.

use crate::support::{Origin, Setup, closed_port};

#[tokio::test]
async fn a_closed_port_gets_502_with_the_reason() {
    let setup = Setup::new().await;
    let authority = closed_port().await;
    let mut client = setup.client().await;
    let line = format!("GET http://{authority}/");
    client.send(setup.request(&line, "Accept: */*\r\n")).await;
    let (head, body) = client.answer().await;
    assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"));
    assert!(head.contains("Content-Type: text/plain; charset=utf-8\r\n"));
    assert!(
        head.contains("Cache-Control: no-store\r\n") && head.contains("Yonder-Error: refused\r\n")
    );
    assert!(body.contains("connection refused") && body.contains(&authority));

    // The same connection goes on; a browser gets a page.
    client
        .send(setup.request(&line, "Accept: text/html,*/*;q=0.8\r\n"))
        .await;
    let (head, body) = client.answer().await;
    assert!(head.contains("Content-Type: text/html; charset=utf-8\r\n"));
    assert!(body.starts_with("<!doctype html>") && body.contains("connection refused"));
    assert!(
        setup
            .proxy
            .last_failure(&authority.parse().unwrap())
            .is_some()
    );

    client
        .send(setup.request(&line.replace("GET", "HEAD"), "Connection: close\r\n"))
        .await;
    assert!(
        client.rest().await.ends_with("\r\n\r\n"),
        "HEAD has no body"
    );
}

#[tokio::test]
async fn a_failed_upload_gets_its_answer_too() {
    let setup = Setup::new().await;
    let authority = closed_port().await;
    let mut client = setup.client().await;
    let lines = format!("Content-Length: {}\r\n", 1024 * 1024);
    client
        .send(setup.request(&format!("POST http://{authority}/"), &lines))
        .await;
    client.send(vec![0; 1024 * 1024]).await;
    let (head, body) = client.answer().await;
    assert!(head.starts_with("HTTP/1.1 502 ") && body.contains("connection refused"));
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn a_policy_gets_403() {
    let setup = Setup::new().await;
    for line in ["GET http://denied.test/", "CONNECT denied.test:1"] {
        let mut client = setup.client().await;
        client.send(setup.request(line, "")).await;
        let (head, body) = client.answer().await;
        assert!(head.starts_with("HTTP/1.1 403 ") && head.contains("Yonder-Error: denied\r\n"));
        assert!(body.contains("forbidden by policy") && body.contains("denied.test"));
    }
}

#[tokio::test]
async fn answers_that_are_not_http_get_502() {
    let setup = Setup::new().await;
    for (answer, code, says) in [
        ("SSH-2.0-OpenSSH\r\n", "bad_response", "not HTTP/1"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "bad_response",
            "Content-Length",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "bad_response",
            "transfer coding",
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "bad_response",
            "switches protocols",
        ),
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n",
            "bad_response",
            "407",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Le", "no_response", "closed"),
        ("", "no_response", "closed"),
    ] {
        let origin = Origin::new().await;
        let mut client = setup.client().await;
        client
            .send(setup.request(&format!("GET {}", origin.url("/")), ""))
            .await;
        let mut server = origin.accept().await;
        server.head().await;
        server.send(answer).await;
        drop(server);
        let (head, body) = client.answer().await;
        assert!(head.starts_with("HTTP/1.1 502 "), "{answer:?}: {head}");
        assert!(
            head.contains(&format!("Yonder-Error: {code}\r\n")),
            "{answer:?}: {head}"
        );
        assert!(body.contains(says), "{answer:?}: {body}");
    }
}

#[tokio::test]
async fn interim_answers_without_end_get_502() {
    let setup = Setup::new().await;
    let origin = Origin::new().await;
    let mut client = setup.client().await;
    client
        .send(setup.request(&format!("GET {}", origin.url("/")), ""))
        .await;
    let mut server = origin.accept().await;
    server.head().await;
    server
        .send("HTTP/1.1 102 Processing\r\n\r\n".repeat(100))
        .await;
    for _ in 0..64 {
        client.expect("HTTP/1.1 102 Processing\r\n\r\n").await;
    }
    assert!(client.answer().await.0.starts_with("HTTP/1.1 502 "));
}
