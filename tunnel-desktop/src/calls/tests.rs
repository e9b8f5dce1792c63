use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;
use yonder_protocol::operation::scalar::TabId;
use yonder_protocol::operation::types::Tab;

use super::*;
use crate::attach::Attachment;
use crate::test_server::{Seen, TestServer, attached, call};

/// Far beyond what any step here takes, so that a hang fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(20);

async fn within<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("it took too long")
}

/// A session that answers by the operation's name.
#[derive(Clone)]
struct FakeSession {
    state: Arc<watch::Sender<State>>,
    /// An operation that never ends was started, and was dropped.
    started: Arc<watch::Sender<bool>>,
    dropped: Arc<AtomicBool>,
}

struct Notes(Arc<AtomicBool>);

impl Drop for Notes {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn tab(number: u32) -> Tab {
    Tab {
        id: TabId::from_uuid(&format!("00000000-0000-0000-0000-{number:012}")).unwrap(),
        url: "about:blank".to_owned(),
        title: String::new(),
        loading: false,
        can_go_back: false,
        can_go_forward: false,
        generation: 1,
        opener_id: None,
    }
}

impl FakeSession {
    fn new() -> Self {
        Self {
            state: Arc::new(watch::Sender::new(State::default())),
            started: Arc::new(watch::Sender::new(false)),
            dropped: Arc::default(),
        }
    }

    fn open_tab(&self) -> Tab {
        let mut tabs = 0;
        self.state.send_modify(|state| {
            tabs = u32::try_from(state.tabs.len()).unwrap();
            state.tabs.push(tab(tabs));
        });
        tab(tabs)
    }
}

impl Execute for FakeSession {
    async fn execute(
        &self,
        request: Request,
        _: Option<u64>,
        _: Vec<GivenFile>,
    ) -> Result<Done, OperationError> {
        match request {
            Request::TabsOpen(_) => Ok(Done {
                value: serde_json::to_value(self.open_tab()).unwrap(),
                files: Vec::new(),
            }),
            Request::Screenshot(_) => Ok(Done {
                value: json!({ "files": [] }),
                files: vec![CapturedFile {
                    id: "file_1".to_owned(),
                    name: "screenshot.png".to_owned(),
                    mime: "image/png".to_owned(),
                    data: Bytes::from_static(b"pixels"),
                }],
            }),
            Request::Evaluate(_) => Ok(Done {
                value: Value::String("x".repeat(limits::RESULT_CHARS)),
                files: Vec::new(),
            }),
            _ => {
                let _notes = Notes(Arc::clone(&self.dropped));
                self.started.send_replace(true);
                std::future::pending().await
            }
        }
    }

    fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }
}

/// A served session and the server's end of its link.
struct Served {
    session: FakeSession,
    link: Link,
    seen: Seen,
    _tasks: JoinSet<()>,
    _attachment: Attachment,
    _server: Arc<TestServer>,
}

async fn served() -> Served {
    let (server, mut seen) = TestServer::new();
    let (attachment, mut fresh, _) = attached(&server).await;
    let session = FakeSession::new();
    let (near, incoming) = fresh.recv().await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(serve(near, incoming, session.clone()));
    let link = seen.links.recv().await.unwrap();
    Served {
        session,
        link,
        seen,
        _tasks: tasks,
        _attachment: attachment,
        _server: server,
    }
}

fn command(name: &str, input: Value) -> Command {
    Command::Operation {
        name: name.to_owned(),
        input,
        generation: None,
        files: Vec::new(),
    }
}

fn of_tab() -> Value {
    json!({ "tabID": tab(0).id })
}

async fn fails(served: &Served, command: Command) -> OperationError {
    match within(call(&served.link, command)).await.0 {
        Outcome::Failure { error } => error,
        Outcome::Success { value, .. } => panic!("it succeeded with {value}"),
    }
}

#[tokio::test]
async fn the_inventory_is_told_at_once_and_before_an_outcome() {
    let mut served = served().await;
    assert_eq!(
        within(served.seen.states.recv()).await.unwrap(),
        State::default()
    );
    for tabs in 1..=5 {
        let (outcome, _) = within(call(&served.link, command("tabs.open", json!({})))).await;
        assert!(matches!(outcome, Outcome::Success { .. }));
        // What was told by now must already hold the tab.
        let mut newest = None;
        while let Ok(state) = served.seen.states.try_recv() {
            newest = Some(state);
        }
        assert_eq!(newest.unwrap().tabs.len(), tabs);
    }
}

#[tokio::test]
async fn changes_by_the_person_are_told_too() {
    let mut served = served().await;
    within(served.seen.states.recv()).await.unwrap();
    for _ in 0..10 {
        served.session.open_tab();
    }
    let mut last = 0;
    while last < 10 {
        let tabs = within(served.seen.states.recv()).await.unwrap().tabs.len();
        assert!(tabs > last, "an older inventory came after a newer one");
        last = tabs;
    }
}

#[tokio::test]
async fn files_follow_the_outcome() {
    let served = served().await;
    let (outcome, files) = within(call(&served.link, command("screenshot", of_tab()))).await;
    let Outcome::Success { files: heads, .. } = outcome else {
        panic!("it failed")
    };
    assert_eq!(heads[0].name, "screenshot.png");
    assert_eq!(files, [Bytes::from_static(b"pixels")]);
}

#[tokio::test]
async fn what_cannot_be_done_is_answered() {
    let served = served().await;
    let error = fails(&served, command("hoover", json!({}))).await;
    assert_eq!(error.code, ErrorCode::UnknownOperation);
    let error = fails(&served, command("click", json!({}))).await;
    assert_eq!(error.code, ErrorCode::Invalid);
    let input = json!({ "tabID": tab(0).id, "script": "1" });
    let error = fails(&served, command("evaluate", input)).await;
    assert!(error.message.contains("ask for a part"), "{error}");
}

#[tokio::test]
async fn a_malformed_call_is_answered() {
    let served = served().await;
    let mut stream = served.link.open_call().unwrap();
    stream.write_all(b"\0\0\0\x02{}").await.unwrap();
    stream.shutdown().await.unwrap();
    let (outcome, _) = within(message::read_message::<_, Outcome>(&mut stream))
        .await
        .unwrap();
    assert!(matches!(
        outcome,
        Outcome::Failure { error } if error.code == ErrorCode::Invalid
    ));
}

#[tokio::test]
async fn a_cancelled_call_stops_its_operation() {
    let served = served().await;
    let mut stream = served.link.open_call().unwrap();
    message::write_message(&mut stream, &command("reload", of_tab()), &[])
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    let mut started = served.session.started.subscribe();
    within(started.wait_for(|started| *started)).await.unwrap();
    drop(stream);
    within(async {
        while !served.session.dropped.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn tunnels_into_the_desk_are_refused() {
    let served = served().await;
    let target = yonder_protocol::Target::new("localhost", 80).unwrap();
    let mut stream = served.link.open_tunnel(&target).unwrap();
    let error = within(stream.opened()).await.unwrap_err();
    assert_eq!(error.code, TunnelErrorCode::Denied);
    assert!(within(stream.read(&mut [0])).await.is_err());
}
