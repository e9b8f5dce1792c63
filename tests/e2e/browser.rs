//! The desktop half's browser: what it may connect to, and what callers are told when things go wrong.

use serde_json::json;
use yonder_tests::halves::{Desktop, Server};
use yonder_tests::site::Site;

#[tokio::test]
async fn a_session_of_operations_through_the_tunnel() {
    let server = Server::start().await;
    let site = Site::start().await;
    let page = site.url("/");
    let _desktop = Desktop::open(&server, &server.url, &page, &[]);
    let tab = server.wait_for_page(&page).await;

    let outline = server.call("snapshot", json!({"tabID": tab})).await;
    let content = outline["content"].as_str().unwrap().to_owned();
    let reference = |role: &str| {
        let line = content
            .lines()
            .find(|line| line.contains(role))
            .unwrap_or_else(|| panic!("{role} in {content}"));
        line.split_whitespace()
            .find(|word| word.starts_with("@e"))
            .unwrap()
            .to_owned()
    };
    server
        .call(
            "fill",
            json!({"tabID": tab, "ref": reference("[textbox]"), "text": "Grace"}),
        )
        .await;
    server
        .call("click", json!({"tabID": tab, "ref": reference("[button]")}))
        .await;
    server
        .call(
            "wait",
            json!({"tabID": tab, "condition": "text", "text": "Hello Grace"}),
        )
        .await;

    let other = server
        .call(
            "tabs.open",
            json!({"url": site.url("/other"), "focus": false}),
        )
        .await;
    let shot = server
        .call("screenshot", json!({"tabID": other["id"]}))
        .await;
    let path = shot["files"][0]["path"].as_str().unwrap();
    assert!(
        std::fs::read(path).unwrap().starts_with(b"\x89PNG"),
        "{path}"
    );

    let tabs = server
        .call("tabs.close", json!({"tabID": other["id"]}))
        .await;
    assert_eq!(tabs["tabs"].as_array().unwrap().len(), 1);
    let error = server
        .try_call("reload", json!({"tabID": other["id"]}))
        .await
        .unwrap_err();
    assert!(error.contains("tabs.list"), "{error}");
}

#[tokio::test]
async fn pages_get_files_of_the_server_that_lie_below_its_upload_roots() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("report.csv"), "a,b").unwrap();
    let root = folder.path().to_str().unwrap();
    let server = Server::start_with(&["--upload-root", root]).await;
    let site = Site::start().await;
    let page = site.url("/");
    let _desktop = Desktop::open(&server, &server.url, &page, &[]);
    let tab = server.wait_for_page(&page).await;
    server
        .evaluate(
            &tab,
            "document.body.innerHTML = '<input type=file aria-label=Report>'",
        )
        .await;
    let give = async |path: &str| {
        let input = json!({ "tabID": tab, "ref": "label=Report", "paths": [path] });
        server.try_call("files.upload", input).await
    };
    give("report.csv").await.unwrap();
    let got = server.evaluate(
        &tab,
        "(async ([file]) => [file.name, file.type, await file.text()])(document.querySelector('input').files)",
    );
    assert_eq!(got.await, json!(["report.csv", "text/csv", "a,b"]));
    let error = give("/etc/hostname").await.unwrap_err();
    assert!(error.contains("--upload-root"), "{error}");
}

#[tokio::test]
async fn bad_input_is_answered_and_loses_nothing() {
    let server = Server::start().await;
    let site = Site::start().await;
    let page = site.url("/");
    let _desktop = Desktop::open(&server, &server.url, &page, &[]);
    let tab = server.wait_for_page(&page).await;

    for (operation, input, exit_code, words) in [
        ("fly", json!({}), 2, "tabs.open"),
        (
            "lighthouse",
            json!({"tabID": tab}),
            2,
            "not available in this version",
        ),
        (
            "click",
            json!({"tabID": tab, "ref": "@e1", "speed": 1}),
            2,
            "modifiers",
        ),
        (
            "click",
            json!({"tabID": tab, "ref": "button"}),
            2,
            "snapshot",
        ),
        (
            "click",
            json!({"tabID": tab, "ref": "@e999999"}),
            1,
            "snapshot",
        ),
        (
            "navigate",
            json!({"tabID": tab, "url": "file:///etc/passwd"}),
            2,
            "http",
        ),
        (
            "navigate",
            json!({"tabID": tab, "url": "http://user:pw@localhost/"}),
            2,
            "user",
        ),
        (
            "evaluate",
            json!({"tabID": tab, "script": "nonsense("}),
            1,
            "SyntaxError",
        ),
        (
            "press",
            json!({"tabID": tab, "key": "Hyper+A"}),
            2,
            "Control",
        ),
    ] {
        let output = yonder_tests::process::output(&mut server.command([
            "call",
            operation,
            &input.to_string(),
        ]))
        .await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(exit_code),
            "{operation} {input}: {said}"
        );
        assert!(said.contains(words), "{operation} {input}: {said}");
        assert!(output.stdout.is_empty(), "{operation} {input}");
    }
    assert_eq!(server.evaluate(&tab, "1 + 1").await, 2);

    // A port where nothing listens: the true cause comes back from the server.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let error = server
        .try_call(
            "navigate",
            json!({"tabID": tab, "url": format!("https://localhost:{port}/")}),
        )
        .await
        .unwrap_err();
    assert!(error.contains("refused"), "{error}");
}
