//! Files for pages.

use serde_json::json;
use yonder_protocol::operation::error::ErrorCode;

use crate::stage::{Stage, refused};

/// What a page got, as `name:content` by file.
const TOLD: &str = "window.told = async list => { const out = []; for (const f of list) out.push(`${f.name}:${await f.text()}`); return out; };
    window.trust = [];";

#[tokio::test(flavor = "multi_thread")]
async fn file_fields_take_files_as_if_a_person_had_chosen_them() {
    let stage = Stage::new().await;
    stage
        .show(&format!(
            "<script>{TOLD}</script>
             <label>One <input id=one type=file></label>
             <input id=many type=file multiple aria-label=Many>
             <input id=folder type=file webkitdirectory aria-label=Folder>
             <input id=off type=file disabled aria-label=Off>
             <script>for (const f of [one, many]) f.onchange = e => trust.push(f.id + e.isTrusted);</script>"
        ))
        .await;
    let one = stage.find("One").await;
    let uploaded = stage
        .give("files.upload", &one, &[("ä b.txt", "first")])
        .await;
    uploaded.unwrap();
    assert_eq!(
        stage.evaluate("told(one.files)").await,
        json!(["ä b.txt:first"])
    );
    // Two of one name are two files; what looks like a path in a name is of no effect.
    let many = [("a", "1"), ("a", "2"), ("../../x", "3")];
    let uploaded = stage.give("files.upload", "css=#many", &many).await;
    uploaded.unwrap();
    assert_eq!(
        stage.evaluate("told(many.files)").await,
        json!(["a:1", "a:2", ".._.._x:3"])
    );
    assert_eq!(
        stage.evaluate("trust").await,
        json!(["onetrue", "manytrue"])
    );
    for (field, files, code, words) in [
        ("css=#one", &many[..2], ErrorCode::Invalid, "takes one file"),
        ("css=#folder", &many[..1], ErrorCode::Invalid, "folder"),
        ("css=#off", &many[..1], ErrorCode::NotActionable, "disabled"),
    ] {
        let result = stage.give("files.upload", field, files).await;
        refused(result, code, words);
    }
    let listed = stage.run("files.list", json!({})).await.unwrap();
    assert_eq!(listed["files"].as_array().unwrap().len(), 4, "{listed}");
    assert_eq!(listed["files"][0]["kind"], "upload");
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_button_that_asks_for_files_is_clicked_and_answered() {
    let stage = Stage::new().await;
    stage
        .show(&format!(
            "<script>{TOLD}</script>
             <input id=behind type=file style='display:none'><button onclick='behind.click()'>Attach</button>
             <button onclick='free.click()'>Detached</button><button>Nothing</button>
             <script>const free = document.createElement('input'); free.type = 'file'; free.multiple = true;</script>"
        ))
        .await;
    let attach = stage.find("Attach").await;
    let uploaded = stage.give("files.upload", &attach, &[("a", "1")]).await;
    uploaded.unwrap();
    assert_eq!(stage.evaluate("told(behind.files)").await, json!(["a:1"]));
    refused(
        stage
            .give("files.upload", &attach, &[("a", "1"), ("b", "2")])
            .await,
        ErrorCode::Invalid,
        "one file",
    );
    let uploaded = stage
        .give("files.upload", "text=Detached", &[("a", "1"), ("b", "2")])
        .await;
    uploaded.unwrap();
    assert_eq!(
        stage.evaluate("told(free.files)").await,
        json!(["a:1", "b:2"])
    );
    refused(
        stage
            .give("files.upload", "text=Nothing", &[("a", "1")])
            .await,
        ErrorCode::OperationFailed,
        "did not ask for files",
    );
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_files_come_with_trusted_events() {
    let stage = Stage::new().await;
    stage
        .show(&format!(
            "<script>{TOLD}</script><div id=zone tabindex=0 style='height:100px;width:300px'>Zone</div><div id=inert tabindex=0>Inert</div>
             <script>
               zone.ondragenter = zone.ondragover = e => {{ e.preventDefault(); trust.push(e.isTrusted && e.dataTransfer.types.includes('Files')); }};
               zone.ondrop = async e => {{ e.preventDefault(); trust.push(e.isTrusted); window.got = await told(e.dataTransfer.files); }};
             </script>"
        ))
        .await;
    let zone = stage.find("Zone").await;
    let dropped = stage
        .give("files.drop", &zone, &[("a.csv", "1,2"), ("b", "")])
        .await;
    dropped.unwrap();
    assert_eq!(
        stage.evaluate("(async () => { while (!window.got) await new Promise(requestAnimationFrame); return [got, trust.length >= 3 && trust.every(Boolean)]; })()").await,
        json!([["a.csv:1,2", "b:"], true])
    );
    // A page that does not take files must not be left for the file itself.
    let inert = stage.find("Inert").await;
    refused(
        stage.give("files.drop", &inert, &[("c", "")]).await,
        ErrorCode::NotActionable,
        "takes no files",
    );
    assert_eq!(stage.evaluate("location.href").await, "http://site.test/");
    stage.close().await;
}
