//! `cargo xtask demo`: both halves, a site and a browser on this machine, and a short tool sequence
//! that an agent might run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::process::{Background, cargo, pause, run, target_folder};
use crate::setup::{Scope, ensure, is_root};
use crate::site;

/// A half that has not started by then has failed.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Chromium's start and the first page, on a busy machine.
const ATTACH_LIMIT: Duration = Duration::from_mins(1);

/// How to run the demo.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Leave everything running for you to play with, until Ctrl+C.
    #[arg(long)]
    keep: bool,
    /// No window, even where there is a display.
    #[arg(long)]
    headless: bool,
}

/// Runs the demo and cleans up.
pub(crate) fn run_demo(arguments: &Arguments) -> anyhow::Result<()> {
    ensure(Scope::Demo)?;
    run(cargo().args([
        "build",
        "--quiet",
        "--locked",
        "--package",
        "tunnel-server",
        "--package",
        "tunnel-desktop",
    ]))?;
    let folder = tempfile::Builder::new().prefix("yonder-demo-").tempdir()?;
    let state = folder.path().join("state");

    let site = site::start()?;
    step(&format!(
        "a site listens on {site}, on the server's loopback only"
    ));

    let mut server = Background::start(
        program("tunnel-server")
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--log",
                "warn",
                "--state-dir",
            ])
            .arg(&state),
    )?;
    let line = server.first_line(START_LIMIT)?;
    let url = line
        .strip_prefix("listening on ")
        .with_context(|| format!("tunnel-server said {line:?}"))?
        .to_owned();
    step(&format!("the server half listens on {url}"));

    let page = format!("http://localhost:{}/", site.port());
    let headless = arguments.headless || !has_display();
    let mut command = program("tunnel-desktop");
    command
        .args(["open", &url, &page, "--log", "warn", "--state-dir"])
        .arg(&state);
    if headless {
        command.arg("--headless");
    }
    if is_root()? {
        eprintln!(
            "   (run by root, so Chromium runs without its sandbox; do not browse strange sites with it)"
        );
        command.arg("--no-sandbox");
    }
    let mut desktop = Background::start(&mut command)?;
    let server_half = ServerHalf { state: &state };
    let tab = server_half.wait_for_page(&mut desktop, &page)?;
    step(&format!(
        "the desktop half opened {page} in Chromium{}, through the tunnel",
        if headless { " (headless)" } else { "" }
    ));

    let result = tools(&server_half, &tab);
    if arguments.keep && result.is_ok() {
        step("everything stays up; press Ctrl+C to end it. Try, in another terminal:");
        println!(
            "   {} call tabs.list --state-dir {}",
            binary("tunnel-server").display(),
            state.display()
        );
        while !desktop.ended()? && !server.ended()? {
            pause();
        }
    }
    desktop.stop()?;
    server.stop()?;
    let picture = result?;
    let kept = std::env::temp_dir().join("yonder-demo-screenshot.png");
    std::fs::copy(&picture, &kept)
        .with_context(|| format!("could not copy the screenshot to {}", kept.display()))?;
    step(&format!(
        "both halves are stopped; the screenshot lies at {}",
        kept.display()
    ));
    Ok(())
}

/// What an agent does: look, fill, click, read, photograph. Answers the picture's path.
fn tools(server: &ServerHalf<'_>, tab: &str) -> anyhow::Result<PathBuf> {
    let outline = server.call("snapshot", &json!({"tabID": tab}))?;
    let content = outline["content"]
        .as_str()
        .context("the snapshot has no content")?;
    step("snapshot shows the page as an agent sees it");
    for line in content.lines() {
        println!("     {line}");
    }
    let field = reference(content, "textbox")?;
    let button = reference(content, "button")?;
    server.call("fill", &json!({"tabID": tab, "ref": field, "text": "Ada"}))?;
    step(&format!("fill typed a name into {field}"));
    server.call("click", &json!({"tabID": tab, "ref": button}))?;
    step(&format!("click pressed {button}"));
    server.call(
        "wait",
        &json!({"tabID": tab, "condition": "text", "text": "Hello Ada"}),
    )?;
    let greeting = server.call(
        "evaluate",
        &json!({"tabID": tab, "script": "greeting.textContent"}),
    )?;
    step(&format!("the page answered: {}", greeting["value"]));
    let shot = server.call("screenshot", &json!({"tabID": tab}))?;
    let path = shot["files"][0]["path"]
        .as_str()
        .context("the screenshot has no path")?;
    step("screenshot photographed the tab");
    Ok(path.into())
}

/// The ref of the first line with `role`.
fn reference(outline: &str, role: &str) -> anyhow::Result<String> {
    outline
        .lines()
        .find(|line| line.contains(&format!("[{role}]")))
        .and_then(|line| line.split_whitespace().find(|word| word.starts_with("@e")))
        .map(str::to_owned)
        .with_context(|| format!("the outline shows no {role}:\n{outline}"))
}

struct ServerHalf<'a> {
    state: &'a Path,
}

impl ServerHalf<'_> {
    fn call(&self, operation: &str, input: &Value) -> anyhow::Result<Value> {
        let output = program("tunnel-server")
            .args(["call", operation, &input.to_string(), "--state-dir"])
            .arg(self.state)
            .output()?;
        if !output.status.success() {
            bail!(
                "{operation} failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{operation} answered no JSON"))
    }

    fn wait_for_page(&self, desktop: &mut Background, page: &str) -> anyhow::Result<String> {
        let deadline = Instant::now() + ATTACH_LIMIT;
        loop {
            let state = self.call("tabs.list", &json!({}));
            if let Ok(state) = &state {
                let ready = state["tabs"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .find(|tab| tab["url"] == page && tab["loading"] == false);
                if let Some(id) = ready.and_then(|tab| tab["id"].as_str()) {
                    return Ok(id.to_owned());
                }
            }
            if desktop.ended()? {
                bail!("the desktop half ended; see its messages above");
            }
            if Instant::now() > deadline {
                bail!("no tab showed {page} in time; the last answer was {state:?}");
            }
            pause();
        }
    }
}

fn step(text: &str) {
    println!("== {text}");
}

fn has_display() -> bool {
    ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

fn binary(name: &str) -> PathBuf {
    target_folder().join("debug").join(name)
}

fn program(name: &str) -> Command {
    Command::new(binary(name))
}
