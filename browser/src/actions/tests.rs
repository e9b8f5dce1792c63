//! The operations on a real Chromium.

mod click;
mod evaluate;
mod fill;
mod observe;
mod press;
#[path = "../../tests/common/site.rs"]
mod site;
mod wait;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use serde_json::{Value, json};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::scalar::TabId;
use yonder_protocol::operation::{Operation, Request};

use self::site::Site;
use crate::cdp::{Ack, Connection};
use crate::tab::{Tab, track};

struct Stage {
    site: Site,
    tab: Arc<Tab>,
    root: crate::cdp::Session,
    _connection: Connection,
    _child: tokio::process::Child,
    _profile: tempfile::TempDir,
    _tracker: AbortOnDropHandle<()>,
}

impl Stage {
    async fn new() -> Self {
        let site = Site::start().await;
        let profile = tempfile::tempdir().unwrap();
        let (read_child, write_ours) = std::io::pipe().unwrap();
        let (read_ours, write_child) = std::io::pipe().unwrap();
        let mut command = std::process::Command::new("/usr/lib/chromium/chromium");
        command
            .args([
                "--headless=new",
                "--no-sandbox",
                "--remote-debugging-pipe",
                "--no-startup-window",
                "--no-first-run",
                "--window-size=1280,800",
                "--proxy-bypass-list=<-loopback>",
                "--disable-features=HttpsUpgrades",
                "--site-per-process",
            ])
            .arg(format!("--proxy-server=http://{}", site.address))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stderr(std::process::Stdio::null());
        command
            .fd_mappings(vec![
                FdMapping {
                    parent_fd: OwnedFd::from(read_child),
                    child_fd: 3,
                },
                FdMapping {
                    parent_fd: OwnedFd::from(write_child),
                    child_fd: 4,
                },
            ])
            .unwrap();
        let mut command = tokio::process::Command::from(command);
        let child = command.kill_on_drop(true).spawn().unwrap();
        let input =
            tokio::net::unix::pipe::Receiver::from_owned_fd_unchecked(OwnedFd::from(read_ours))
                .unwrap();
        let output =
            tokio::net::unix::pipe::Sender::from_owned_fd_unchecked(OwnedFd::from(write_ours))
                .unwrap();
        let connection = Connection::open(input, output);
        let root = connection.root();
        let (tab, tracker) = open(&root).await;
        Self {
            site,
            tab,
            root,
            _connection: connection,
            _child: child,
            _profile: profile,
            _tracker: tracker,
        }
    }

    async fn go(&self, url: &str) {
        let before = self.tab.view().borrow().commits;
        let _: Ack = self
            .tab
            .session()
            .call("Page.navigate", json!({ "url": url }))
            .await
            .unwrap();
        let mut view = self.tab.view();
        view.wait_for(|view| view.commits != before && view.loaded && !view.loading)
            .await
            .unwrap();
    }

    async fn show(&self, body: &str) {
        self.site.page("/", body);
        self.go("http://site.test/").await;
    }

    async fn run(&self, name: &str, input: Value) -> Result<Value, OperationError> {
        run_on(&self.tab, name, input).await
    }
}

async fn open(root: &crate::cdp::Session) -> (Arc<Tab>, AbortOnDropHandle<()>) {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Made {
        target_id: String,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct At {
        session_id: String,
    }
    let made: Made = root
        .call(
            "Target.createTarget",
            json!({ "url": "about:blank", "newWindow": true }),
        )
        .await
        .unwrap();
    let at: At = root
        .call(
            "Target.attachToTarget",
            json!({ "targetId": made.target_id, "flatten": true }),
        )
        .await
        .unwrap();
    let page = root.flat(&at.session_id);
    let events = page.events();
    let id = TabId::from_uuid(&uuid::Uuid::new_v4().to_string()).unwrap();
    let tab = Tab::new(id, made.target_id, page);
    let tasks = TaskTracker::new();
    let tracker = tasks.spawn(track(Arc::clone(&tab), events, tasks.clone(), || {}));
    tab.view().wait_for(|view| view.ready).await.unwrap();
    (tab, AbortOnDropHandle::new(tracker))
}

async fn run_on(tab: &Tab, name: &str, mut input: Value) -> Result<Value, OperationError> {
    input["tabID"] = tab.id().as_str().into();
    let request = Operation::named(name).unwrap().parse(input)?;
    let output = match &request {
        Request::Snapshot(input) => json!(super::snapshot(tab, input).await?),
        Request::Find(input) => json!(super::find(tab, input).await?),
        Request::Evaluate(input) => json!(super::evaluate(tab, input).await?),
        Request::Wait(input) => json!(super::wait(tab, input).await?),
        Request::Click(input) => json!(super::click(tab, input).await?),
        Request::Fill(input) => json!(super::fill(tab, input).await?),
        Request::Press(input) => json!(super::press(tab, input).await?),
        other => panic!("{}", other.name()),
    };
    Operation::named(name)
        .unwrap()
        .check_output(&output)
        .unwrap();
    Ok(output)
}

impl Stage {
    /// The outline of the page.
    async fn snapshot(&self) -> String {
        self.run("snapshot", json!({})).await.unwrap()["content"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// The ref in the first line of the outline that holds `text`.
    async fn find(&self, text: &str) -> String {
        let found = self.run("find", json!({ "text": text })).await.unwrap();
        let content = found["content"].as_str().unwrap();
        let line = content.lines().find(|line| line.starts_with('@'));
        let line = line.unwrap_or_else(|| panic!("no ref for {text:?} in {content}"));
        line.split(' ').next().unwrap().to_owned()
    }

    async fn evaluate(&self, script: &str) -> Value {
        self.run("evaluate", json!({ "script": script }))
            .await
            .unwrap()["value"]
            .clone()
    }

    async fn click(&self, text: &str) -> Result<Value, OperationError> {
        let element = self.find(text).await;
        self.run("click", json!({ "ref": element })).await
    }

    async fn fill(&self, text: &str, value: &str) -> Result<Value, OperationError> {
        let element = self.find(text).await;
        self.run("fill", json!({ "ref": element, "text": value }))
            .await
    }
}

fn refused(result: Result<Value, OperationError>, code: ErrorCode, words: &str) {
    let error = result.expect_err(words);
    assert!(
        error.code == code && error.message.contains(words),
        "{error:?} has no {words:?}"
    );
}
