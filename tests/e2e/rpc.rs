//! The attachment RPC, spoken by `curl` as a host would that can hold no WebSocket.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinSet;
use yonder_tests::eventually;
use yonder_tests::halves::Server;
use yonder_tests::process::{Process, output};

struct Host<'a> {
    server: &'a Server,
    connection: &'static str,
}

impl Host<'_> {
    fn curl(&self, method: &str, mut input: Value) -> Command {
        input["sessionID"] = json!("default");
        input["connectionID"] = json!(self.connection);
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--no-buffer", "--header"])
            .arg(format!("Yonder-Token: {}", self.server.token()))
            .args(["--header", "Content-Type: application/json", "--data"])
            .arg(input.to_string())
            .arg(format!(
                "{}/rpc/{method}",
                self.server.url.trim_end_matches('/')
            ))
            .stdin(Stdio::null());
        command
    }

    async fn call(&self, method: &str, input: Value) -> Value {
        let answer = output(&mut self.curl(method, input)).await;
        serde_json::from_slice(&answer.stdout).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Attaches, and waits until the server half knows.
    async fn attach(&self) -> Process {
        let attachment = Process::start(&mut self.curl("attach", json!({"version": 4})));
        eventually("the attachment is there", async || {
            let state = json!({"tabs": [], "focusedTabID": null});
            let answer = self.call("state", json!({"state": state})).await;
            (answer == json!({})).then_some(()).ok_or(answer)
        })
        .await;
        attachment
    }
}

#[tokio::test]
async fn tunnels_move_bytes_once_and_half_close() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut target = JoinSet::new();
    target.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        stream.write_all(&all).await.unwrap();
    });
    let server = Server::start().await;
    let host = Host {
        server: &server,
        connection: "one",
    };
    let _attachment = host.attach().await;
    let opened = host
        .call(
            "tunnel.open",
            json!({"target": {"host": "localhost", "port": port}}),
        )
        .await;
    let tunnel = opened["tunnelID"].clone();
    assert!(tunnel.is_string(), "{opened}");
    // The repetition of a numbered write is answered and moves nothing.
    for _ in 0..2 {
        let written = host
            .call(
                "tunnel.write",
                json!({"tunnelID": tunnel, "data": "aGVs", "sequence": 1}),
            )
            .await;
        assert_eq!(written, json!({}));
    }
    host.call(
        "tunnel.write",
        json!({"tunnelID": tunnel, "data": "bG8=", "sequence": 2, "end": true}),
    )
    .await;
    for _ in 0..2 {
        let read = host
            .call("tunnel.read", json!({"tunnelID": tunnel, "sequence": 1}))
            .await;
        assert_eq!(read, json!({"data": "aGVsbG8=", "eof": false}));
    }
    let end = host
        .call("tunnel.read", json!({"tunnelID": tunnel, "sequence": 2}))
        .await;
    assert_eq!(end, json!({"data": "", "eof": true}));
    for _ in 0..2 {
        assert_eq!(
            host.call("tunnel.close", json!({"tunnelID": tunnel})).await,
            json!({})
        );
    }
    let refused = host
        .call(
            "tunnel.open",
            json!({"target": {"host": "localhost", "port": 0}}),
        )
        .await;
    assert_eq!(refused["error"]["code"], "invalid");
}

#[tokio::test]
async fn a_newer_attachment_replaces_and_a_left_one_frees_the_session() {
    let server = Server::start().await;
    let (first, second) = (
        Host {
            server: &server,
            connection: "first",
        },
        Host {
            server: &server,
            connection: "second",
        },
    );
    let mut replaced = first.attach().await;
    let mut left = second.attach().await;
    assert_eq!(
        replaced.line().await,
        json!({"outcome": "replaced"}).to_string()
    );
    assert_eq!(
        first
            .call(
                "state",
                json!({"state": {"tabs": [], "focusedTabID": null}})
            )
            .await["error"]["code"],
        "unavailable"
    );
    left.terminate().await;
    eventually("the session is free", async || {
        let status = server.status().await;
        status["sessions"]
            .as_array()
            .is_some_and(Vec::is_empty)
            .then_some(())
            .ok_or(status)
    })
    .await;
}
