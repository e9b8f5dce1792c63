//! Desktop halves on a running server: their carriers, their tunnels and the operations that reach them.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;
use yonder_protocol::Target;
use yonder_protocol::call::{Command, FileHead, Notice, Outcome};
use yonder_protocol::link::{CloseCode, Role, SessionName};
use yonder_protocol::operation::types::State;
use yonder_transport::carrier::CarrierKind;
use yonder_transport::client::{ClientHello, Connected, connect};
use yonder_transport::connect::{AuthHeader, Connector, ConnectorConfig};
use yonder_transport::link::{IncomingStream, Link, LinkConfig};
use yonder_transport::message::{read_message, write_message};
use yonder_transport::tls::TlsOptions;
use yonder_transport::token::SecretToken;

use crate::support::{PATIENCE, Server};

const TAB: &str = "tab_00000000-0000-0000-0000-000000000001";
const FILE: &str = "file_00000000-0000-0000-0000-000000000002";

pub(crate) async fn attach(server: &Server, role: Role, force: Option<CarrierKind>) -> Connected {
    let presence = std::fs::read(server.state_path.join("server.json")).unwrap();
    let presence: Value = serde_json::from_slice(&presence).unwrap();
    let pins = presence["pin"].as_str().map(|pin| pin.parse().unwrap());
    let connector = Connector::new(ConnectorConfig {
        address: server.url.parse().unwrap(),
        token: SecretToken::new(&server.token).unwrap(),
        tls: TlsOptions {
            ca_file: None,
            pins: pins.into_iter().collect(),
        },
        headers: Vec::new(),
        auth_header: AuthHeader::Authorization,
        force,
    })
    .unwrap();
    let hello = ClientHello {
        role,
        session: SessionName::new("default").unwrap(),
    };
    timeout(
        PATIENCE,
        connect(Arc::new(connector), hello, LinkConfig::desktop("test/1")),
    )
    .await
    .unwrap()
    .unwrap()
}

/// Sends `bytes` through a tunnel to an echo and half-closes; answers what came back.
async fn echo(link: &Link, bytes: &[u8]) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target::new("localhost", listener.local_addr().unwrap().port()).unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let stream = link.open_tunnel(&target).unwrap();
    let (mut read, mut write) = tokio::io::split(stream);
    let mut back = Vec::new();
    let (sent, received) = tokio::join!(
        async {
            write.write_all(bytes).await?;
            write.shutdown().await
        },
        timeout(PATIENCE, read.read_to_end(&mut back)),
    );
    sent.unwrap();
    received.unwrap().unwrap();
    back
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnels_pass_over_every_carrier() {
    for (arguments, force, name) in [
        (&[][..], CarrierKind::WebSocket, "websocket"),
        (&[], CarrierKind::Poll, "HTTP requests"),
        (
            &["--tls-self-signed"],
            CarrierKind::WebSocket,
            "websocket over TLS 1.3",
        ),
        (&["--tls-self-signed"], CarrierKind::Poll, "HTTP requests"),
    ] {
        let server = Server::start(arguments);
        let desk = attach(&server, Role::Tunnels, Some(force)).await;
        let bytes: Vec<_> = (0..1_000_003_u32).map(|n| (n % 251) as u8).collect();
        assert!(echo(&desk.link, &bytes).await == bytes, "{name}");
        let (code, out, _) = spawn_blocking(move || server.run(&["status"]))
            .await
            .unwrap();
        assert_eq!(code, 0);
        assert!(out.contains(name) && out.contains("test/1"), "{out}");
    }
}

/// A desktop half that has told its one tab.
async fn desktop(server: &Server, force: Option<CarrierKind>) -> Connected {
    let desk = attach(server, Role::Browser, force).await;
    let state: State = serde_json::from_value(json!({
        "tabs": [{
            "id": TAB, "url": "http://localhost:8000/", "title": "Home", "loading": false,
            "canGoBack": false, "canGoForward": false, "generation": 1
        }],
        "focusedTabID": TAB
    }))
    .unwrap();
    let mut call = desk.link.open_call().unwrap();
    write_message(&mut call, &Notice::State { state }, &[])
        .await
        .unwrap();
    call.shutdown().await.unwrap();
    let (outcome, _): (Outcome, _) = read_message(&mut call).await.unwrap();
    assert!(matches!(outcome, Outcome::Success { .. }));
    desk
}

/// The next operation that reaches the desktop half.
async fn next_call(desk: &mut Connected) -> (String, IncomingStream) {
    let mut incoming = timeout(PATIENCE, desk.incoming.next())
        .await
        .unwrap()
        .unwrap();
    let (Command::Operation { name, .. }, _) = read_message(&mut incoming.stream).await.unwrap()
    else {
        panic!("not an operation")
    };
    (name, incoming)
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_reach_the_desktop_and_their_files_the_disk() {
    let server = Arc::new(Server::start(&[]));
    let waiting = server.clone();
    let waiting = spawn_blocking(move || waiting.send("GET", "/attached?was=false", "").json());
    let mut desk = desktop(&server, None).await;
    assert_eq!(waiting.await.unwrap(), json!({"attached": true}));
    for inline in [false, true] {
        let caller = server.clone();
        let answer = spawn_blocking(move || {
            let input = json!({"tabID": TAB}).to_string();
            if inline {
                caller
                    .send("POST", "/call/screenshot?files=inline", &input)
                    .json()
            } else {
                let (code, out, err) = caller.run(&["call", "screenshot", &input]);
                assert_eq!(code, 0, "{err}");
                serde_json::from_str(&out).unwrap()
            }
        });
        let (name, mut call) = next_call(&mut desk).await;
        assert_eq!(name, "screenshot");
        let outcome = Outcome::Success {
            value: json!({
                "tab": {
                    "id": TAB, "url": "http://localhost:8000/", "title": "Home", "loading": false,
                    "canGoBack": false, "canGoForward": false, "generation": 1
                },
                "files": [{"id": FILE, "name": "shot.png", "mime": "image/png", "bytes": 3}]
            }),
            files: vec![FileHead {
                id: Some(FILE.to_owned()),
                name: "shot.png".into(),
                mime: "image/png".into(),
                bytes: 3,
            }],
        };
        write_message(&mut call.stream, &outcome, &[Bytes::from_static(b"PNG")])
            .await
            .unwrap();
        call.stream.shutdown().await.unwrap();
        let answer: Value = answer.await.unwrap();
        let value = if inline { &answer["value"] } else { &answer };
        let path = value["files"][0]["path"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"));
        assert_eq!(std::fs::read(path).unwrap(), b"PNG");
        assert!(
            path.starts_with(server.state_path.to_str().unwrap()),
            "{path}"
        );
        if inline {
            assert_eq!(answer["files"][0]["data"], "UE5H");
        }
    }
    let status = server.clone();
    let (_, shown, _) = spawn_blocking(move || status.run(&["status"]))
        .await
        .unwrap();
    assert!(
        shown.contains("session default") && shown.contains("Home"),
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_leaves_cancels_its_operation() {
    let server = Server::start(&[]);
    let mut desk = desktop(&server, None).await;
    let mut caller = server.connect();
    write!(
        caller,
        "POST /call/tabs.list HTTP/1.1\r\nHost: x\r\nYonder-Token: {}\r\nContent-Length: 2\r\n\r\n{{}}",
        server.token
    )
    .unwrap();
    let (_, mut call) = next_call(&mut desk).await;
    drop(caller);
    timeout(PATIENCE, call.stream.failed()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_lets_running_operations_end_and_tells_the_desktop() {
    for force in [CarrierKind::WebSocket, CarrierKind::Poll] {
        let mut server = Server::start(&["--grace", "15"]);
        let mut desk = desktop(&server, Some(force)).await;
        let mut caller = server.connect();
        write!(
            caller,
            "POST /call/tabs.list HTTP/1.1\r\nHost: x\r\nYonder-Token: {}\r\nContent-Length: 2\r\n\r\n{{}}",
            server.token
        )
        .unwrap();
        let (_, mut call) = next_call(&mut desk).await;
        server.signal(Signal::TERM);
        // Until it is there, the server is known to have got the signal only by its log.
        crate::support::until(|| {
            server
                .log()
                .contains("stopping; running work")
                .then_some(())
        });
        let outcome = Outcome::Success {
            value: json!({"tabs": [], "focusedTabID": null}),
            files: Vec::new(),
        };
        write_message(&mut call.stream, &outcome, &[])
            .await
            .unwrap();
        call.stream.shutdown().await.unwrap();
        let answer = spawn_blocking(move || {
            let mut answer = String::new();
            std::io::Read::read_to_string(&mut caller, &mut answer).unwrap();
            answer
        });
        assert!(answer.await.unwrap().contains("focusedTabID"), "{force}");
        timeout(Duration::from_secs(5), desk.link.closed())
            .await
            .unwrap();
        let ended = spawn_blocking(move || server.wait().code()).await.unwrap();
        assert_eq!(ended, Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_that_leaves_is_no_longer_attached() {
    let server = Arc::new(Server::start(&[]));
    let desk = desktop(&server, None).await;
    let waiting = server.clone();
    let waiting = spawn_blocking(move || waiting.send("GET", "/attached?was=true", "").json());
    desk.link.close(CloseCode::Detached, "done");
    assert_eq!(waiting.await.unwrap(), json!({"attached": false}));
}
