//! What the routes answer while no desktop is attached.

use serde_json::json;

use crate::support::Server;

#[test]
fn calls_that_cannot_be_run_say_why() {
    let server = Server::start(&[]);
    for (path, body, status, code, words) in [
        (
            "/call/tabs.list",
            "{}",
            503,
            "disconnected",
            "no desktop is attached",
        ),
        ("/call/tabs.list", "", 503, "disconnected", "default"),
        (
            "/call/tabs.list?session=work",
            "{}",
            503,
            "disconnected",
            "work",
        ),
        (
            "/call/tabs.list?session=a%20b",
            "{}",
            400,
            "invalid",
            "session",
        ),
        ("/call/tabs.list", "{", 400, "invalid", "not JSON"),
        ("/call/tabs.list", "[]", 400, "invalid", "JSON object"),
        (
            "/call/tabs.list",
            "{\"x\":1}",
            400,
            "invalid",
            "takes no arguments",
        ),
        ("/call/click", "{\"tab\":1}", 400, "invalid", "tabID"),
        ("/call/nothing", "{}", 404, "unknown_operation", "tabs.list"),
        (
            "/call/lighthouse",
            "{}",
            501,
            "unsupported",
            "not available in this version",
        ),
        ("/call/tabs.list?files=all", "{}", 400, "invalid", "inline"),
    ] {
        let answer = server.send("POST", path, body);
        assert_eq!(answer.status, status, "{path} {body}: {answer:?}");
        assert_eq!(answer.error_code(), code, "{path} {body}");
        assert!(
            answer.body.contains(words),
            "{path} {body}: {}",
            answer.body
        );
    }
}

#[test]
fn status_metrics_and_description_are_there() {
    let server = Server::start(&[]);
    let status = server.send("GET", "/status", "").json();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["links"], json!([]));
    let metrics = server.send("GET", "/metrics", "");
    assert!(
        metrics
            .header("Content-Type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    assert!(
        metrics
            .body
            .contains(r#"yonder_http_requests_total{route="status",status="200"} 1"#),
        "{}",
        metrics.body
    );
    assert_eq!(
        server.send("GET", "/openapi.json", "").json()["openapi"],
        "3.1.0"
    );
    assert_eq!(
        server.send("GET", "/attached", "").json(),
        json!({"attached": false})
    );
    assert_eq!(
        server.send("GET", "/attached?was=true", "").json(),
        json!({"attached": false})
    );
    assert_eq!(server.send("GET", "/attached?was=x", "").status, 400);
}

#[test]
fn mcp_answers_over_http() {
    let server = Server::start(&[]);
    let hello = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}
        }
    });
    let headers = [
        ("Yonder-Token", server.token.as_str()),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
    ];
    let answer = server.send_with("POST", "/mcp", &headers, &hello.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains("serverInfo"), "{}", answer.body);
}
