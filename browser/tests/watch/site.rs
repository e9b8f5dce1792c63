//! A site behind a proxy that serves it under every host name: pages that a test makes up, redirects, event
//! streams and WebSockets that echo.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tokio_websockets::ServerBuilder;

/// An answer: the header fields behind the status line, and the body.
#[derive(Clone)]
struct Answer {
    status: u16,
    fields: String,
    body: Vec<u8>,
}

#[derive(Default)]
struct Table {
    answers: HashMap<String, Answer>,
    asked: Vec<String>,
}

type Shared = Arc<Mutex<Table>>;

/// The running site; it ends when it is dropped.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    table: Shared,
    _server: AbortOnDropHandle<()>,
}

impl Site {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let table = Shared::default();
        let icon = Answer {
            status: 204,
            fields: String::new(),
            body: Vec::new(),
        };
        let mut answers = HashMap::new();
        answers.insert("/favicon.ico".to_owned(), icon);
        lock(&table).answers = answers;
        let served = Arc::clone(&table);
        let server = TaskTracker::new().spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let table = Arc::clone(&served);
                connections.spawn(async move {
                    // A connection that ends early is the browser's business.
                    let _ = serve(stream, table).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self {
            address,
            table,
            _server: AbortOnDropHandle::new(server),
        }
    }

    /// Serves `body` as a page at `path` of every host.
    pub(crate) fn page(&self, path: &str, body: &str) {
        let page = format!("<!doctype html><meta charset=utf-8><title>{path}</title>{body}");
        self.answer(path, 200, "Content-Type: text/html\r\n", page.as_bytes());
    }

    pub(crate) fn script(&self, path: &str, script: &str) {
        let fields = "Content-Type: text/javascript\r\n";
        self.answer(path, 200, fields, script.as_bytes());
    }

    pub(crate) fn answer(&self, path: &str, status: u16, fields: &str, body: &[u8]) {
        let answer = Answer {
            status,
            fields: fields.to_owned(),
            body: body.to_owned(),
        };
        let mut table = lock(&self.table);
        table.answers.insert(path.to_owned(), answer);
    }

    /// How often `path` was asked for.
    pub(crate) fn asked(&self, path: &str) -> usize {
        let table = lock(&self.table);
        table.asked.iter().filter(|asked| *asked == path).count()
    }
}

fn lock(table: &Shared) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(mut stream: TcpStream, table: Shared) -> std::io::Result<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let lower = head.to_ascii_lowercase();
        if head.starts_with("CONNECT ") {
            stream.write_all(b"HTTP/1.1 200 X\r\n\r\n").await?;
            echo(stream).await;
            return Ok(());
        }
        let length = lower
            .split_once("\r\ncontent-length:")
            .and_then(|(_, rest)| rest.split("\r\n").next()?.trim().parse().ok())
            .unwrap_or(0_usize);
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let target = head.split(' ').nth(1).unwrap_or_default();
        if target.starts_with("http://prime.invalid/") {
            let answer = if lower.contains("\r\nproxy-authorization:") {
                "HTTP/1.1 204 X\r\n\r\n"
            } else {
                "HTTP/1.1 407 X\r\nProxy-Authenticate: Basic realm=\"test\"\r\nContent-Length: 0\r\n\r\n"
            };
            stream.write_all(answer.as_bytes()).await?;
            continue;
        }
        let path = target
            .split_once("://")
            .and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]))
            .unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default();
        let answer = {
            let mut table = lock(&table);
            table.asked.push(path.to_owned());
            table.answers.get(path).cloned()
        };
        if path == "/never" {
            // Until the browser gives up.
            stream.read_u8().await?;
        }
        let Answer {
            status,
            fields,
            body,
        } = answer.unwrap_or_else(|| Answer {
            status: 404,
            fields: "Content-Type: text/plain\r\n".to_owned(),
            body: b"not here".to_vec(),
        });
        if fields.contains("event-stream") {
            let head = format!("HTTP/1.1 {status} X\r\n{fields}\r\n");
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&body).await?;
            // The stream stays open until the browser leaves.
            stream.read_u8().await?;
        }
        let head = format!(
            "HTTP/1.1 {status} X\r\n{fields}Content-Length: {}\r\nCache-Control: no-store\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body).await?;
    }
}

/// A WebSocket server that sends back what it gets.
async fn echo(stream: TcpStream) {
    let Ok((_, mut socket)) = ServerBuilder::new().accept(stream).await else {
        return;
    };
    while let Some(Ok(message)) = socket.next().await {
        if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
            return;
        }
    }
}
