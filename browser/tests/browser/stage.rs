//! A browser behind a small proxy that is also every site: it asks for the credential as the real proxy
//! does, notes what it is asked for, and answers from a table of pages.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use yonder_browser::{Browser, BrowserConfig, BrowserSession, Done, ProxyCredential};
use yonder_protocol::operation::Operation;
use yonder_protocol::operation::error::{ErrorCode, OperationError};

/// What the proxy was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) authorized: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: String,
    pub(crate) body: Vec<u8>,
    pub(crate) delay: Duration,
    /// The body is the beginning of one that does not end; the connection does, once this is cancelled.
    pub(crate) cut: Option<CancellationToken>,
}

#[derive(Default)]
struct Table {
    pages: HashMap<String, Answer>,
    asked: Vec<Asked>,
    sessions: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    table: Arc<Mutex<Table>>,
    _server: Arc<AbortOnDropHandle<()>>,
}

impl Site {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let table = Arc::<Mutex<Table>>::default();
        let served = Arc::clone(&table);
        let server = TaskTracker::new().spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let table = Arc::clone(&served);
                connections.spawn(async move {
                    // A connection that ends early is the browser's business.
                    let _ = serve(stream, table).await;
                });
            }
        });
        Self {
            address,
            table,
            _server: Arc::new(AbortOnDropHandle::new(server)),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `user` with `password` in.
    pub(crate) fn admit(&self, user: &str, password: &str) -> ProxyCredential {
        let token = STANDARD.encode(format!("{user}:{password}"));
        self.table().sessions.push(format!("Basic {token}"));
        ProxyCredential::new(user, password)
    }

    /// Serves an HTML page at `path` of every host.
    pub(crate) fn page(&self, path: &str, body: &str) {
        let html = format!(
            "<!doctype html><meta charset=utf-8><title>{path}</title><body style='margin:0'>{body}"
        );
        self.answer(path, 200, "Content-Type: text/html\r\n", html.as_bytes());
    }

    pub(crate) fn answer(&self, path: &str, status: u16, fields: &str, body: &[u8]) {
        self.slow(path, status, fields, body, Duration::ZERO);
    }

    pub(crate) fn slow(&self, path: &str, status: u16, fields: &str, body: &[u8], delay: Duration) {
        let answer = Answer {
            status,
            fields: fields.to_owned(),
            body: body.to_owned(),
            delay,
            cut: None,
        };
        self.table().pages.insert(path.to_owned(), answer);
    }

    /// Serves the beginning of a body, on connections that are cut once the answered token is cancelled.
    pub(crate) fn unfinished(&self, path: &str, fields: &str, body: &[u8]) -> CancellationToken {
        let cut = CancellationToken::new();
        let answer = Answer {
            status: 200,
            fields: fields.to_owned(),
            body: body.to_owned(),
            delay: Duration::ZERO,
            cut: Some(cut.clone()),
        };
        self.table().pages.insert(path.to_owned(), answer);
        cut
    }

    /// What was asked for since the last call.
    pub(crate) fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.table().asked)
    }
}

async fn serve(mut stream: TcpStream, table: Arc<Mutex<Table>>) -> std::io::Result<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            // Requests without a body, as all here are, end with their head.
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut words = head.split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default().to_owned();
        let given = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("proxy-authorization")
                .then(|| value.trim().to_owned())
        });
        let (authorized, page) = {
            let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
            let authorized = given.is_some_and(|given| table.sessions.contains(&given));
            table.asked.push(Asked {
                method: method.clone(),
                target: target.clone(),
                authorized,
            });
            let path = target
                .split_once("://")
                .and_then(|(_, rest)| rest.find('/').map(|at| rest[at..].to_owned()))
                .unwrap_or_default();
            (authorized, table.pages.get(&path).cloned())
        };
        let priming = target.starts_with("http://prime.invalid/");
        let bare = |status, fields: &str, body: &[u8]| Answer {
            status,
            fields: fields.to_owned(),
            body: body.to_owned(),
            delay: Duration::ZERO,
            cut: None,
        };
        let Answer {
            status,
            fields,
            body,
            delay,
            cut,
        } = match page {
            _ if priming && authorized => bare(204, "", b""),
            _ if priming => bare(407, "Proxy-Authenticate: Basic realm=\"test\"\r\n", b""),
            _ if !authorized => bare(403, "", b""),
            _ if method == "CONNECT" => bare(502, "", b""),
            Some(page) => page,
            None => bare(404, "", b"not here"),
        };
        tokio::time::sleep(delay).await;
        if status == 0 {
            return Ok(());
        }
        let length = match (status, &cut) {
            (204, _) => String::new(),
            (_, None) => format!("Content-Length: {}\r\n", body.len()),
            (_, Some(_)) => format!("Content-Length: {}\r\n", 2 * body.len()),
        };
        let head = format!("HTTP/1.1 {status} X\r\n{fields}{length}\r\n");
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body).await?;
        if let Some(cut) = cut {
            cut.cancelled().await;
            return Ok(());
        }
    }
}

/// A headless browser with one session.
pub(crate) struct Stage {
    pub(crate) site: Site,
    pub(crate) browser: Browser,
    pub(crate) session: BrowserSession,
}

pub(crate) fn config(site: &Site) -> BrowserConfig {
    let mut config = BrowserConfig::new(site.address);
    config.headless = true;
    // Tests may run as root, for whom Chromium has no sandbox.
    config.sandbox = !is_root();
    config
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(Path::new("/proc/self")).is_ok_and(|own| own.uid() == 0)
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let site = Site::start().await;
        let browser = Browser::launch(config(&site)).await.unwrap();
        let credential = site.admit("default", "secret");
        let session = browser.open_session("default", credential).await.unwrap();
        Self {
            site,
            browser,
            session,
        }
    }

    /// The id of the first tab.
    pub(crate) fn first(&self) -> String {
        self.session.state().borrow().tabs[0].id.to_string()
    }

    pub(crate) async fn done(
        &self,
        name: &str,
        input: Value,
        generation: Option<u64>,
    ) -> Result<Done, OperationError> {
        done(&self.session, name, input, generation).await
    }

    pub(crate) async fn run(&self, name: &str, input: Value) -> Result<Value, OperationError> {
        Ok(self.done(name, input, None).await?.value)
    }

    /// Runs an operation on the tab, with further arguments.
    pub(crate) async fn on(
        &self,
        tab: &str,
        name: &str,
        mut input: Value,
    ) -> Result<Value, OperationError> {
        input["tabID"] = json!(tab);
        self.run(name, input).await
    }

    pub(crate) async fn script(&self, tab: &str, script: &str) -> Value {
        let done = self.on(tab, "evaluate", json!({ "script": script })).await;
        done.unwrap()["value"].clone()
    }

    pub(crate) async fn go(&self, tab: &str, url: &str) -> Result<Value, OperationError> {
        self.on(tab, "navigate", json!({ "url": url })).await
    }
}

pub(crate) async fn done(
    session: &BrowserSession,
    name: &str,
    input: Value,
    generation: Option<u64>,
) -> Result<Done, OperationError> {
    let operation = Operation::named(name)?;
    let done = session.execute(operation.parse(input)?, generation).await?;
    let mut value = done.value.clone();
    if !done.files.is_empty() {
        for file in value["files"].as_array_mut().unwrap() {
            file["path"] = json!("/added/by/the/server");
        }
    }
    operation.check_output(&value).unwrap();
    Ok(done)
}

/// Asserts that `result` failed with `code` and a message that holds all of `words`.
pub(crate) fn refused(result: Result<Value, OperationError>, code: ErrorCode, words: &[&str]) {
    let error = result.expect_err("the operation must fail");
    assert_eq!(error.code, code, "{error}");
    for word in words {
        assert!(error.message.contains(word), "{word:?} is not in {error}");
    }
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), wait).await;
    waited.unwrap_or_else(|_| panic!("never happened: {what}"));
}
