//! A Vite dev server on the server's loopback, browsed from the desk, hot reload included.

use std::path::Path;
use std::process::Stdio;

use serde_json::json;
use tokio::process::Command;
use yonder_tests::halves::{Desktop, Server};
use yonder_tests::process::Process;
use yonder_tests::reverse_proxy::fixtures;

async fn hot_reload_on(host: &str) {
    let app = tempfile::tempdir().unwrap();
    for file in ["index.html", "main.js", "message.js"] {
        std::fs::copy(
            fixtures().join("vite-app").join(file),
            app.path().join(file),
        )
        .unwrap();
    }
    let vite = Path::new(env!("CARGO_MANIFEST_DIR")).join("npm/node_modules/vite/bin/vite.js");
    let mut dev_server = Process::start(
        Command::new("node")
            .arg(vite)
            .args(["--host", host, "--port", "0", "--clearScreen", "false"])
            .current_dir(app.path())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null()),
    );
    let port = loop {
        let line = dev_server.line().await;
        if let Some((_, url)) = line.split_once("Local:") {
            break url
                .trim()
                .trim_end_matches('/')
                .rsplit(':')
                .next()
                .unwrap()
                .to_owned();
        }
    };

    let server = Server::start().await;
    let page = format!("http://localhost:{port}/");
    let _desktop = Desktop::open(&server, &server.url, &page, &[]);
    let tab = server.wait_for_page(&page).await;
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
    assert_eq!(server.evaluate(&tab, up).await, "up");

    // A reload of the page would lose this.
    server.evaluate(&tab, "window.mark = 'kept'").await;
    std::fs::write(
        app.path().join("message.js"),
        "export const message = \"second version\";\n",
    )
    .unwrap();
    text_shown("second version").await;
    assert_eq!(server.evaluate(&tab, "window.mark").await, "kept");
}

#[tokio::test]
async fn hot_reload_of_a_server_bound_to_localhost() {
    hot_reload_on("localhost").await;
}

#[tokio::test]
async fn hot_reload_of_a_server_bound_only_to_ipv4_loopback() {
    hot_reload_on("127.0.0.1").await;
}

#[tokio::test]
async fn hot_reload_of_a_server_bound_only_to_ipv6_loopback() {
    hot_reload_on("::1").await;
}
