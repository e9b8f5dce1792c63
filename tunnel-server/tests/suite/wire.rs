//! What reverse proxies and odd clients do to requests.

use std::io::{Read as _, Write as _};

use crate::support::{Answer, Server};

#[test]
fn http_1_0_is_answered_in_its_own_way() {
    let server = Server::start(&[]);
    let answer = server.raw(b"GET /healthz HTTP/1.0\r\n\r\n");
    assert_eq!(answer.status, 200);
    assert!(answer.head.starts_with("HTTP/1.0 "), "{}", answer.head);
    assert_eq!(answer.header("Transfer-Encoding"), None);
    assert_eq!(answer.body, r#"{"status":"ok"}"#);
    // A stream ends with its connection, so it may not be in chunks.
    let mut stream = server.connect();
    write!(
        stream,
        "GET /rpc/events HTTP/1.0\r\nYonder-Token: {}\r\n\r\n",
        server.token
    )
    .unwrap();
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let answer = Answer::parse(&head);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("Transfer-Encoding"), None);
}

#[test]
fn connection_upgrade_without_an_upgrade_is_an_ordinary_request() {
    let server = Server::start(&[]);
    let request = |path: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nYonder-Token: {}\r\n\r\n",
            server.token
        )
    };
    let mut stream = server.connect();
    for _ in 0..2 {
        stream.write_all(request("/healthz").as_bytes()).unwrap();
        assert_eq!(read_answer(&mut stream).status, 200);
    }
    stream.write_all(request("/link").as_bytes()).unwrap();
    let answer = read_answer(&mut stream);
    assert_eq!(answer.status, 426);
    assert_eq!(answer.header("Upgrade"), Some("websocket"));
    assert!(answer.header("Yonder-Version").is_some());
}

#[test]
fn any_prefix_and_any_host_work() {
    let server = Server::start(&["--path-prefix", "/tools/yonder/"]);
    assert!(server.url.ends_with("/tools/yonder"), "{}", server.url);
    for prefix in ["", "/tools/yonder", "/other", "/a%2Fb", "/"] {
        assert_eq!(
            server.send("GET", &format!("{prefix}/status"), "").status,
            200,
            "{prefix}"
        );
    }
    assert_eq!(server.run(&["status"]).0, 0);
}

#[test]
fn unknown_routes_and_methods_are_told() {
    let server = Server::start(&[]);
    let answer = server.send("GET", "/nothing", "");
    assert_eq!(
        (answer.status, answer.error_code().as_str()),
        (404, "unknown_route")
    );
    let answer = server.send("PUT", "/call/tabs.list", "{}");
    assert_eq!((answer.status, answer.header("Allow")), (405, Some("POST")));
    let answer = server.send("POST", "/metrics", "");
    assert_eq!(
        (answer.status, answer.header("Allow")),
        (405, Some("GET, HEAD"))
    );
}

#[test]
fn a_refused_upload_is_read_before_it_is_answered() {
    let server = Server::start(&[]);
    let mut stream = server.connect();
    let length = 3 * 1024 * 1024;
    write!(
        stream,
        "POST /rpc/tunnel.write HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
    )
    .unwrap();
    stream.write_all(&vec![b'x'; length]).unwrap();
    assert_eq!(read_answer(&mut stream).status, 401);
    // The connection is still good.
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    assert_eq!(read_answer(&mut stream).status, 200);
}

#[test]
fn an_oversized_body_is_refused_with_the_limit() {
    let server = Server::start(&[]);
    let answer = server.send("POST", "/call/tabs.list", &"x".repeat(1024 * 1024 + 1));
    assert_eq!(
        (answer.status, answer.error_code().as_str()),
        (413, "too_large")
    );
    assert!(answer.body.contains("1048576"), "{}", answer.body);
}

#[test]
fn an_oversized_head_is_refused() {
    let server = Server::start(&[]);
    let mut stream = server.connect();
    let head = format!(
        "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n",
        "x".repeat(300 * 1024)
    );
    // The server may stop reading before all of it is sent.
    let _cut = stream.write_all(head.as_bytes());
    let mut answer = [0; 12];
    if stream.read_exact(&mut answer).is_ok() {
        assert_eq!(&answer, b"HTTP/1.1 431");
    }
    assert_eq!(server.send("GET", "/status", "").status, 200);
}

#[test]
fn chunked_bodies_are_read() {
    let server = Server::start(&[]);
    let request = format!(
        "POST /call/tabs.list HTTP/1.1\r\nHost: x\r\nConnection: close\r\nYonder-Token: {}\r\n\
         Transfer-Encoding: chunked\r\n\r\n3\r\n{{\"a\r\n5\r\n\":1}}\n\r\n0\r\n\r\n",
        server.token
    );
    let answer = server.raw(request.as_bytes());
    assert_eq!(
        (answer.status, answer.error_code().as_str()),
        (400, "invalid")
    );
    assert!(
        answer.body.contains("takes no arguments"),
        "{}",
        answer.body
    );
}

/// Reads one answer with a declared length, and leaves the connection open.
fn read_answer(stream: &mut std::net::TcpStream) -> Answer {
    let mut bytes = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
        if bytes.ends_with(b"\r\n\r\n") {
            break;
        }
    }
    let answer = Answer::parse(&bytes);
    let length = answer.header("Content-Length").unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    bytes.extend(body);
    Answer::parse(&bytes)
}
