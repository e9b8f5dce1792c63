use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;

/// The browser's end of a pipe, played by the test.
struct Peer {
    stream: DuplexStream,
}

impl Peer {
    fn new() -> (Self, Connection) {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (input, output) = tokio::io::split(ours);
        (Self { stream: theirs }, Connection::open(input, output))
    }

    async fn receive(&mut self) -> Value {
        let mut message = Vec::new();
        loop {
            match self.stream.read_u8().await.unwrap() {
                0 => return serde_json::from_slice(&message).unwrap(),
                byte => message.push(byte),
            }
        }
    }

    async fn send(&mut self, message: &Value) {
        self.stream
            .write_all(message.to_string().as_bytes())
            .await
            .unwrap();
        self.stream.write_all(&[0]).await.unwrap();
    }
}

#[tokio::test]
async fn replies_find_their_callers_in_any_order() {
    let (mut peer, connection) = Peer::new();
    let root = connection.root();
    let (first, second, ()) = tokio::join!(
        root.call::<Value>("A.one", json!({"x": 1})),
        root.call::<Value>("A.two", NoParams {}),
        async {
            let one = peer.receive().await;
            let two = peer.receive().await;
            assert_eq!(one["params"], json!({"x": 1}));
            assert!(one.get("sessionId").is_none());
            peer.send(&json!({"id": two["id"], "error": {"code": -32000, "message": "no"}}))
                .await;
            peer.send(&json!({"id": one["id"], "result": {"y": 2}}))
                .await;
        }
    );
    assert_eq!(first.unwrap(), json!({"y": 2}));
    assert!(matches!(
        second,
        Err(CdpError::Refused { method: "A.two", code: -32000, message }) if message == "no"
    ));
}

#[tokio::test]
async fn a_session_ends_with_its_parent_and_fails_its_calls() {
    let (mut peer, connection) = Peer::new();
    let root = connection.root();
    let mut events = root.events();
    for (parent, child) in [("", "page"), ("page", "frame")] {
        let mut event =
            json!({"method": "Target.attachedToTarget", "params": {"sessionId": child}});
        if !parent.is_empty() {
            event["sessionId"] = json!(parent);
        }
        peer.send(&event).await;
    }
    assert_eq!(
        events.next().await.unwrap().method,
        "Target.attachedToTarget"
    );
    let page = root.flat("page");
    events.add(&page);
    // The second attachment was sent before `add`, so wait for it by a call instead.
    let (answer, ()) = tokio::join!(page.call::<Value>("A.b", NoParams {}), async {
        let command = peer.receive().await;
        assert_eq!(command["sessionId"], "page");
        peer.send(&json!({"id": command["id"], "sessionId": "page", "result": {}}))
            .await;
    });
    answer.unwrap();
    let frame = root.flat("frame");
    let mut of_frame = frame.events();
    let (answer, ()) = tokio::join!(frame.call::<Value>("A.c", NoParams {}), async {
        peer.receive().await;
        peer.send(&json!({"method": "B.last", "sessionId": "frame", "params": {"n": 7}}))
            .await;
        peer.send(&json!({"method": "Target.detachedFromTarget", "params": {"sessionId": "page"}}))
            .await;
    });
    assert!(matches!(answer, Err(CdpError::Detached)));
    assert!(frame.has_ended() && page.has_ended() && !root.has_ended());
    let last: Value = of_frame.next().await.unwrap().parse().unwrap();
    assert_eq!(last, json!({"n": 7}));
    assert!(of_frame.next().await.is_none());
    assert!(matches!(
        page.call::<Value>("A.d", NoParams {}).await,
        Err(CdpError::Detached)
    ));
}

#[tokio::test]
async fn the_end_of_the_browser_fails_everything_at_once() {
    let (peer, connection) = Peer::new();
    let root = connection.root();
    let mut events = root.events();
    let (answer, ()) = tokio::join!(root.call::<Value>("A.b", NoParams {}), async {
        drop(peer);
    });
    assert!(matches!(answer, Err(CdpError::Gone)));
    assert!(events.next().await.is_none());
    assert!(matches!(
        root.call::<Value>("A.b", NoParams {}).await,
        Err(CdpError::Gone)
    ));
}

#[tokio::test(start_paused = true)]
async fn silence_is_a_time_out_and_leaves_the_connection_usable() {
    let (mut peer, connection) = Peer::new();
    let root = connection.root();
    let silent = root.call_within::<Value>(Duration::from_secs(1), "A.slow", NoParams {});
    assert!(matches!(
        silent.await,
        Err(CdpError::TimedOut { method: "A.slow" })
    ));
    let late = peer.receive().await;
    peer.send(&json!({"id": late["id"], "result": {}})).await;
    peer.send(&json!("not a message")).await;
    let (answer, ()) = tokio::join!(root.call::<Value>("A.b", NoParams {}), async {
        let command = peer.receive().await;
        peer.send(&json!({"id": command["id"], "result": {"ok": true}}))
            .await;
    });
    assert_eq!(answer.unwrap(), json!({"ok": true}));
}

#[tokio::test]
async fn a_stream_that_nobody_reads_loses_events_and_says_so() {
    let (mut peer, connection) = Peer::new();
    let root = connection.root();
    let mut events = root.events();
    for _ in 0..5_000 {
        peer.send(&json!({"method": "A.event"})).await;
    }
    let (answer, ()) = tokio::join!(root.call::<Value>("A.b", NoParams {}), async {
        let command = peer.receive().await;
        peer.send(&json!({"id": command["id"], "result": {}})).await;
    });
    answer.unwrap();
    assert!(events.take_missed() && !events.take_missed());
    assert!(events.next().await.is_some());
}
