//! A site of pages that a test makes up, behind a proxy that serves it under every host name.
//!
//! Host names that differ are different sites to the browser, so that `http://other.test/` in a page of
//! `http://site.test/` is a cross-site frame. The proxy answers the browser's priming request as the
//! real one does.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// Media type and content, by path.
type Pages = Arc<Mutex<HashMap<String, (String, String)>>>;

/// The running site; it ends when it is dropped.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pages: Pages,
    _server: AbortOnDropHandle<()>,
}

impl Site {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let pages = Pages::default();
        let served = Arc::clone(&pages);
        let tasks = tokio_util::task::TaskTracker::new();
        let server = tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&served)));
                while connections.try_join_next().is_some() {}
            }
        });
        Self {
            address,
            pages,
            _server: AbortOnDropHandle::new(server),
        }
    }

    /// Serves `body` at `path` of every host. A path that holds `slow` takes a while.
    pub(crate) fn page(&self, path: &str, body: &str) {
        let page = format!(
            "<!doctype html><html lang=en><head><meta charset=utf-8><title>{path}</title></head><body>{body}</body></html>"
        );
        self.file(path, "text/html; charset=utf-8", &page);
    }

    /// Serves `content` at `path` of every host.
    pub(crate) fn file(&self, path: &str, mime: &str, content: &str) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.insert(path.to_owned(), (mime.to_owned(), content.to_owned()));
    }
}

async fn serve(mut stream: TcpStream, pages: Pages) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1).unwrap_or_default();
    let authorized = head
        .to_ascii_lowercase()
        .contains("\r\nproxy-authorization:");
    let response = if target.starts_with("http://prime.invalid") {
        if authorized {
            "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n".to_owned()
        } else {
            "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"test\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned()
        }
    } else {
        let path = target
            .strip_prefix("http://")
            .and_then(|rest| rest.find('/').map(|at| &rest[at..]))
            .unwrap_or("/");
        let path = path.split(['?', '#']).next().unwrap_or_default();
        if path.contains("slow") {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let body = pages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(path)
            .cloned();
        let status = if body.is_some() {
            "200 OK"
        } else {
            "404 Not Found"
        };
        let (mime, body) = body.unwrap_or_default();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {mime}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    };
    // A browser that went away needs no answer.
    let _ = stream.write_all(response.as_bytes()).await;
    let _ = stream.shutdown().await;
}
