//! A small app under Vite's dev server, with hot reload.

use std::path::Path;
use std::process::Stdio;

use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use crate::halves::Server;
use crate::process::Process;
use crate::reverse_proxy::fixtures;

/// The app of `fixtures/vite-app` in a folder of its own, served. Its heading shows `first version`.
#[derive(Debug)]
pub struct App {
    /// Vite's port.
    pub port: u16,
    folder: TempDir,
    _dev_server: Process,
}

impl App {
    /// Serves it on `host`, one of the loopback's names, on a port that Vite picks.
    pub async fn start(host: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for file in ["index.html", "main.js", "message.js"] {
            std::fs::copy(
                fixtures().join("vite-app").join(file),
                folder.path().join(file),
            )
            .unwrap();
        }
        let vite = Path::new(env!("CARGO_MANIFEST_DIR")).join("npm/node_modules/vite/bin/vite.js");
        let mut dev_server = Process::start(
            Command::new("node")
                .arg(vite)
                .args(["--host", host, "--port", "0", "--clearScreen", "false"])
                .current_dir(folder.path())
                .env("NO_COLOR", "1")
                .stdin(Stdio::null()),
        );
        let port = loop {
            let line = dev_server.line().await;
            if let Some((_, url)) = line.split_once("Local:") {
                let authority = url.trim().trim_end_matches('/');
                break authority.rsplit(':').next().unwrap().parse().unwrap();
            }
        };
        Self {
            port,
            folder,
            _dev_server: dev_server,
        }
    }

    /// Its address as a browser on the server's own machine would have it.
    pub fn url(&self) -> String {
        format!("http://localhost:{}/", self.port)
    }

    /// Requires of `tab`, which shows the app, that a change on the server's disk appears without the page being
    /// loaded again. Afterwards the heading shows `second version`.
    pub async fn requires_hot_reload(&self, server: &Server, tab: &str) {
        let text_shown = async |text: &str| {
            server
                .call(
                    "wait",
                    json!({"tabID": tab, "condition": "text", "text": text, "timeoutMs": 30_000}),
                )
                .await
        };
        text_shown("first version").await;
        let up = "new Promise(resolve => { const look = () => window.hotReload === 'up' ? resolve('up') : setTimeout(look, 20); look() })";
        assert_eq!(server.evaluate(tab, up).await, "up");

        // A reload of the page would lose this.
        server.evaluate(tab, "window.mark = 'kept'").await;
        std::fs::write(
            self.folder.path().join("message.js"),
            "export const message = \"second version\";\n",
        )
        .unwrap();
        text_shown("second version").await;
        assert_eq!(server.evaluate(tab, "window.mark").await, "kept");
    }
}
