//! What pages have the browser save.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use yonder_protocol::operation::error::ErrorCode;

use crate::stage::{Stage, refused, until};

const HTML: &str = "Content-Type: text/html\r\n";

const ATTACHMENT: &str = "Content-Disposition: attachment; filename=\"b\u{e4}r 1.zip\"\r\nContent-Type: application/zip\r\n";

impl Stage {
    async fn files(&self, tab: &str) -> Vec<Value> {
        let listed = self.on(tab, "files.list", json!({})).await.unwrap();
        listed["files"].as_array().unwrap().clone()
    }

    /// The first `count` downloads of the tab, once none of them goes on.
    async fn downloads(&self, tab: &str, count: usize) -> Vec<Value> {
        until("the downloads end", async || {
            let files = self.files(tab).await;
            files.len() >= count && files.iter().all(|file| file["state"] != "pending")
        })
        .await;
        self.files(tab).await
    }

    /// What `files.get` brings of the file.
    async fn content(&self, tab: &str, file: &Value) -> Vec<u8> {
        let input = json!({ "tabID": tab, "fileID": file["id"] });
        let done = self.done("files.get", input, None).await.unwrap();
        done.files[0].data.to_vec()
    }

    async fn click(&self, tab: &str, locator: &str) {
        let clicked = self.on(tab, "click", json!({ "ref": locator })).await;
        clicked.unwrap();
    }
}

fn sha256(content: &[u8]) -> String {
    let hex = |text: String, byte: &u8| text + &format!("{byte:02x}");
    Sha256::digest(content).iter().fold(String::new(), hex)
}

#[tokio::test]
async fn downloads_of_every_kind_become_files_of_the_tab() {
    let stage = Stage::new().await;
    let tab = &*stage.first();
    let zip: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    stage.site.answer("/zip", 200, ATTACHMENT, &zip);
    stage.site.answer("/page", 200, HTML, b"<p>saved page");
    stage.site.page(
        "/a",
        "<a id=link href=/page download='../saved.html'>link</a>
         <a id=header href=/zip>header</a>
         <a id=window href=/zip target=_blank>window</a>
         <a id=data download=data.txt href='data:text/plain,from%20data'>data</a>
         <button id=blob onclick=\"const a = document.createElement('a'); a.download = 'blob.bin';
           a.href = window.URL.createObjectURL(new Blob(['from blob'])); a.click()\">blob</button>",
    );
    stage.go(tab, "http://localhost/a").await.unwrap();
    let kinds: [(&str, &str, &[u8]); 5] = [
        ("css=#link", "saved.html", b"<p>saved page"),
        ("css=#header", "b\u{e4}r 1.zip", &zip),
        ("css=#window", "b\u{e4}r 1.zip", &zip),
        ("css=#data", "data.txt", b"from data"),
        ("css=#blob", "blob.bin", b"from blob"),
    ];
    for (at, (locator, name, content)) in kinds.iter().enumerate() {
        stage.click(tab, locator).await;
        let files = stage.downloads(tab, at + 1).await;
        assert_eq!(files.len(), at + 1, "{files:?}");
        let file = &files[at];
        assert_eq!(file["kind"], "download", "{file}");
        assert_eq!(file["state"], "completed", "{file}");
        assert!(file["name"].as_str().unwrap().ends_with(name), "{file}");
        assert_eq!(file["bytes"], json!(content.len()), "{file}");
        assert_eq!(file["sha256"], json!(sha256(content)), "{file}");
        assert_eq!(stage.content(tab, file).await, *content, "{locator}");
    }
    // The tab is where it was, and the one that was opened for a download is gone.
    until("one tab is left", async || {
        let state = stage.run("tabs.list", json!({})).await.unwrap();
        state["tabs"].as_array().unwrap().len() == 1
    })
    .await;
    let state = stage.session.state().borrow().tabs[0].clone();
    assert_eq!(state.url, "http://localhost/a");

    let navigated = stage.go(tab, "http://localhost/zip").await;
    refused(
        navigated,
        ErrorCode::NavigationFailed,
        &["download", "files.list"],
    );
    let files = stage.downloads(tab, 6).await;
    assert_eq!(files[5]["sha256"], json!(sha256(&zip)));
    let summary = stage.on(
        tab,
        "heap.summary",
        json!({ "fileID": files[5]["id"], "limit": 1 }),
    );
    refused(summary.await, ErrorCode::Invalid, &["a download"]);
    stage.browser.close().await;
}

#[tokio::test]
async fn a_download_shows_how_far_it_is_and_that_it_failed() {
    let stage = Stage::new().await;
    let tab = &*stage.first();
    stage.site.page("/a", "<a id=header href=/zip>header</a>");
    let cut = stage.site.unfinished("/zip", ATTACHMENT, &vec![7; 100_000]);
    stage.go(tab, "http://localhost/a").await.unwrap();
    stage.click(tab, "css=#header").await;
    until("some of it has come", async || {
        let files = stage.files(tab).await;
        files.first().is_some_and(|file| file["bytes"] == 100_000)
    })
    .await;
    let file = &stage.files(tab).await[0];
    assert_eq!(file["state"], "pending", "{file}");
    assert_eq!(file.get("sha256"), None);
    let get = || stage.on(tab, "files.get", json!({ "fileID": file["id"] }));
    refused(get().await, ErrorCode::FileFailed, &["goes on"]);
    // The browser begins again a few times by itself.
    cut.cancel();
    let files = stage.downloads(tab, 1).await;
    assert_eq!(files[0]["state"], "failed", "{files:?}");
    refused(get().await, ErrorCode::FileFailed, &["failed"]);
    stage.browser.close().await;
}
