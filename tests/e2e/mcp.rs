//! An MCP client of other people, over both transports.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStdin, Command};
use yonder_tests::PATIENCE;
use yonder_tests::halves::{Desktop, Server};
use yonder_tests::process::{Process, output, program};
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

/// An agent on the desk that started `tunnel-desktop mcp` as its child.
struct DeskAgent {
    process: Process,
    input: ChildStdin,
    calls: u32,
}

impl DeskAgent {
    async fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut process = Process::start(
            Command::new(program("tunnel-desktop"))
                .args(["mcp", &server.url, "--headless", "--no-sandbox"])
                .args(arguments)
                .arg("--state-dir")
                .arg(server.state())
                .stdin(Stdio::piped()),
        );
        let input = process.stdin();
        let mut agent = Self {
            process,
            input,
            calls: 0,
        };
        let hello = agent
            .request(
                "initialize",
                json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}),
            )
            .await;
        assert_eq!(hello["serverInfo"]["name"], "yonder");
        agent
            .send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        agent
    }

    async fn send(&mut self, message: Value) {
        let line = format!("{message}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        let answer: Value = serde_json::from_str(&self.process.line().await).unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        answer["result"].clone()
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
            .await
    }
}

#[tokio::test]
async fn an_agent_on_the_desk_has_a_browser_of_its_own() {
    let server = Server::start().await;
    let site = Site::start().await;
    // The desktop that a person has open is not pushed out.
    let mut person = Desktop::open(&server, &server.url, &site.url("/"), &[]);
    let tab = server.wait_for_page(&site.url("/")).await;

    let captures = tempfile::tempdir().unwrap();
    let folder = captures.path().to_str().unwrap();
    let mut agent = DeskAgent::start(&server, &["--capture-dir", folder]).await;
    let listed = agent.request("tools/list", json!({})).await;
    let names: Vec<_> = (listed["tools"].as_array().unwrap().iter())
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"browser_tabs_open"), "{names:?}");

    let opened = agent
        .call("browser_tabs_open", json!({"url": site.url("/other")}))
        .await;
    let own = opened["structuredContent"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let outline = agent.call("browser_snapshot", json!({"tabID": own})).await;
    assert_eq!(outline["isError"], false, "{outline}");
    let shot = agent
        .call("browser_screenshot", json!({"tabID": own}))
        .await;
    assert_eq!(shot["content"][1]["type"], "image", "{shot}");
    let path = shot["structuredContent"]["files"][0]["path"]
        .as_str()
        .unwrap();
    assert!(Path::new(path).starts_with(captures.path().canonicalize().unwrap()));
    assert!(std::fs::read(path).unwrap().starts_with(b"\x89PNG"));
    let stranger = agent.call("browser_snapshot", json!({"tabID": tab})).await;
    assert_eq!(stranger["isError"], true, "{stranger}");

    let tabs = server.call("tabs.list", json!({})).await;
    assert_eq!(tabs["tabs"].as_array().unwrap().len(), 1, "{tabs}");
    assert!(person.process.ended().is_none());

    // The agent leaves: so does the browser.
    let DeskAgent {
        mut process, input, ..
    } = agent;
    drop(input);
    assert!(process.wait_within(PATIENCE).await.success());
}

#[tokio::test]
async fn an_agent_on_the_desk_may_serve_a_session_to_the_server_too() {
    let server = Server::start().await;
    let site = Site::start().await;
    let mut agent = DeskAgent::start(&server, &["--session", "default"]).await;
    let opened = agent
        .call("browser_tabs_open", json!({"url": site.url("/")}))
        .await;
    let tab = server.wait_for_page(&site.url("/")).await;
    assert_eq!(opened["structuredContent"]["id"], tab.as_str());
}

#[tokio::test]
async fn an_agent_on_the_desk_is_told_when_the_server_is_not_there() {
    let state = tempfile::tempdir().unwrap();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", nobody.local_addr().unwrap());
    drop(nobody);
    let answer = output(
        Command::new(program("tunnel-desktop"))
            .args(["mcp", &url, "--headless", "--no-sandbox", "--state-dir"])
            .arg(state.path())
            .env("YONDER_TOKEN", "of-no-server-at-all-0123456789abcdef")
            .stdin(Stdio::null()),
    )
    .await;
    assert_eq!(answer.status.code(), Some(3));
    assert!(answer.stdout.is_empty());
    assert!(!answer.stderr.is_empty());
}
