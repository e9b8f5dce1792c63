//! An MCP client of other people, over both transports.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;
use yonder_tests::halves::{Desktop, Server};
use yonder_tests::process::{output, program};
use yonder_tests::site::Site;

/// The MCP Inspector's command line; answers the JSON that it prints.
async fn inspector(target: &[&str], method: &[&str]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("npm/node_modules/@modelcontextprotocol/inspector/cli/build/cli.js");
    let answer = output(
        Command::new("node")
            .arg(script)
            .args(target)
            .args(method)
            .stdin(Stdio::null()),
    )
    .await;
    assert!(
        answer.status.success(),
        "{}",
        String::from_utf8_lossy(&answer.stderr)
    );
    serde_json::from_slice(&answer.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&answer.stdout)))
}

async fn lists_and_calls(target: &[&str], server: &Server) {
    let empty = inspector(target, &["--method", "tools/list"]).await;
    assert_eq!(empty["tools"], json!([]), "no desktop is attached yet");

    let site = Site::start().await;
    let page = site.url("/");
    let _desktop = Desktop::open(server, &server.url, &page, &[]);
    let tab = server.wait_for_page(&page).await;

    let listed = inspector(target, &["--method", "tools/list"]).await;
    let tools = listed["tools"].as_array().unwrap();
    let snapshot = tools
        .iter()
        .find(|tool| tool["name"] == "browser_snapshot")
        .expect("the snapshot tool");
    assert_eq!(snapshot["annotations"]["readOnlyHint"], true);
    assert_eq!(snapshot["outputSchema"]["type"], "object");

    let call = async |tool: &str, arguments: &[String]| {
        let mut method = vec!["--method", "tools/call", "--tool-name", tool];
        for argument in arguments {
            method.extend(["--tool-arg", argument]);
        }
        inspector(target, &method).await
    };
    let tabs = call("browser_tabs_list", &[]).await;
    assert_eq!(
        tabs["structuredContent"]["tabs"][0]["id"],
        tab.as_str(),
        "{tabs}"
    );
    let outline = call("browser_snapshot", &[format!("tabID={tab}")]).await;
    assert!(
        outline["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("A page of the server"),
        "{outline}"
    );
    let shot = call(
        "browser_screenshot",
        &[format!("tabID={tab}"), "format=jpeg".to_owned()],
    )
    .await;
    assert_eq!(shot["content"][1]["type"], "image");
    assert_eq!(shot["content"][1]["mimeType"], "image/jpeg");
    let wrong = call("browser_snapshot", &["tabID=tab_1".to_owned()]).await;
    assert_eq!(wrong["isError"], true);
}

#[tokio::test]
async fn over_streamable_http() {
    let server = Server::start().await;
    let url = format!("{}/mcp", server.url.trim_end_matches('/'));
    let header = format!("Authorization: Bearer {}", server.token());
    lists_and_calls(
        &["--cli", &url, "--transport", "http", "--header", &header],
        &server,
    )
    .await;
}

#[tokio::test]
async fn over_standard_input_and_output() {
    let server = Server::start().await;
    let binary = program("tunnel-server");
    let target = [
        "--cli",
        binary.to_str().unwrap(),
        "mcp",
        "--state-dir",
        server.state().to_str().unwrap(),
    ];
    lists_and_calls(&target, &server).await;
}
