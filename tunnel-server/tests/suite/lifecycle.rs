//! Start and stop.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::Server;

#[test]
fn both_signals_stop_it_and_its_traces_are_gone() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(&[]);
        let presence = server.state_path.join("server.json");
        assert!(presence.exists());
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0));
        assert!(!presence.exists());
    }
}

#[test]
fn a_killed_server_leaves_nothing_in_the_way() {
    let base = tempfile::tempdir().unwrap();
    let state = base.path().join("state");
    let mut server = Server::start_in(&state, &[], &[]);
    server.signal(Signal::KILL);
    server.wait();
    assert!(state.join("server.json").exists());
    assert_eq!(server.run(&["status"]).0, 3);
    let again = Server::start_in(&state, &[], &[]);
    assert_eq!(again.token, server.token);
    assert_eq!(again.run(&["status"]).0, 0);
}

#[test]
fn waiting_requests_are_answered_when_it_stops() {
    let mut server = Server::start(&[]);
    let mut waiting = server.connect();
    let request = |path: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nYonder-Token: {}\r\n\r\n",
            server.token
        )
    };
    waiting
        .write_all(request("/attached?was=false").as_bytes())
        .unwrap();
    let mut events = server.connect();
    events.write_all(request("/rpc/events").as_bytes()).unwrap();
    let mut first = [0; 1];
    events.read_exact(&mut first).unwrap();
    server.signal(Signal::TERM);
    let started = Instant::now();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with(r#"{"attached":false}"#), "{answer}");
    events.read_to_string(&mut answer).unwrap();
    assert_eq!(server.wait().code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_request_that_never_ends_does_not_hold_it_up() {
    for signals in [1, 2] {
        let mut server = Server::start(&["--grace", "1"]);
        let mut stuck = server.connect();
        write!(
            stuck,
            "POST /call/tabs.list HTTP/1.1\r\nHost: x\r\nYonder-Token: {}\r\nContent-Length: 100\r\n\r\n{{",
            server.token
        )
        .unwrap();
        let started = Instant::now();
        for _ in 0..signals {
            server.signal(Signal::TERM);
        }
        assert_eq!(server.wait().code(), Some(0));
        assert!(started.elapsed() < Duration::from_secs(6));
    }
}

#[test]
fn localhost_is_served_on_both_families() {
    let base = tempfile::tempdir().unwrap();
    let server = Server::start_in(
        &base.path().join("state"),
        &[],
        &[("YONDER_LISTEN", "localhost:0")],
    );
    let port: u16 = server
        .url
        .strip_prefix("http://localhost:")
        .unwrap()
        .parse()
        .unwrap();
    let mut reached = 0;
    for address in ["127.0.0.1", "::1"] {
        if std::net::TcpStream::connect((address, port)).is_ok() {
            reached += 1;
        }
    }
    let has_v6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    assert_eq!(reached, 1 + i32::from(has_v6));
}

#[test]
fn a_key_of_its_own_is_kept_and_pinned() {
    let base = tempfile::tempdir().unwrap();
    let state = base.path().join("state");
    let pin_of = |server: &Server| {
        let log = server.log();
        let at = log.find("sha256:").unwrap_or_else(|| panic!("{log}"));
        log[at..at + 71].to_owned()
    };
    let mut server = Server::start_in(&state, &["--tls-self-signed"], &[]);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let pin = pin_of(&server);
    // Found by the state directory, with the pin that lies there.
    assert_eq!(server.run(&["status"]).0, 0);
    let url = server.url.clone();
    assert_eq!(
        server.run(&["status", "--server", &url, "--pin", &pin]).0,
        0
    );
    let (code, _, err) = server.run(&["status", "--server", &url]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains(&pin), "{err}");
    let other = format!("sha256:{}", "0".repeat(64));
    assert_eq!(
        server.run(&["status", "--server", &url, "--pin", &other]).0,
        3
    );
    // Plain HTTP on the port is no way around.
    let mut plain = server.connect();
    plain
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    let _reset = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"));
    server.signal(Signal::TERM);
    server.wait();
    let server = Server::start_in(&state, &["--tls-self-signed"], &[]);
    assert_eq!(pin_of(&server), pin);
}
