//! The command line from outside: exit codes, and what is said about each mistake.

#![allow(
    clippy::unwrap_used,
    reason = "a panic is how a test reports, and helpers outside of #[test] functions are part of it"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;

use tempfile::TempDir;

/// A person's machine: a state directory with a token, and nothing else.
struct Desk {
    folder: TempDir,
}

impl Desk {
    fn new() -> Self {
        let desk = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        desk.file("token", "secret-of-the-test", 0o600);
        desk
    }

    fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tunnel-desktop"));
        command
            .args(args)
            .env_clear()
            .env("HOME", self.folder.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("YONDER_STATE_DIR", self.folder.path());
        command
    }

    fn run(&self, args: &[&str]) -> (i32, String) {
        outcome(&self.command(args).output().unwrap())
    }
}

/// The exit code and standard error, which must not give the token away.
fn outcome(output: &Output) -> (i32, String) {
    let errors = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(!errors.contains("secret-of-the-test"), "{errors}");
    (output.status.code().unwrap(), errors)
}

/// Asserts the exit code and that each of `hints` is said.
#[track_caller]
fn expect((code, errors): (i32, String), wanted: i32, hints: &[&str]) {
    assert_eq!(code, wanted, "{errors}");
    for hint in hints {
        assert!(errors.contains(hint), "{hint:?} is not in: {errors}");
    }
}

/// Answers every request with `answer` and returns its own URL.
fn http_server(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut seen = Vec::new();
            let mut buffer = [0; 4096];
            while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
                match connection.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(n) => seen.extend_from_slice(&buffer[..n]),
                }
            }
            let _ = connection.write_all(answer.as_bytes());
        }
    });
    url
}

/// A URL at which nothing listens.
fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn help_and_version_succeed() {
    let desk = Desk::new();
    for args in [&["--help"][..], &["open", "--help"], &["--version"]] {
        let output = desk.command(args).output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("tunnel-desktop"), "{text}");
    }
}

#[test]
fn what_stands_behind_ssh_is_judged_by_its_end() {
    let desk = Desk::new();
    for (arguments, code, words) in [
        (&["ssh://-oProxyCommand=x"][..], 2, "begin with -"),
        (&["ssh://me:secret@host"], 2, "password"),
        (&["ssh://host", "--ssh", "'ssh"], 2, "quote"),
        (&["ssh://host", "--ssh-remote", " "], 2, "ssh-remote"),
        (&["ssh://host", "--ssh", "/nonexistent/ssh"], 2, "--ssh"),
        (&["ssh://host", "--ssh", "false"], 3, "exit code 1"),
        (
            &["ssh://host", "--ssh", "echo This is no server half."],
            3,
            "This is no server half.",
        ),
        (
            &["ssh://host", "--ssh", "sh -c 'exit 127'"],
            3,
            "cargo install",
        ),
        (
            &[
                "ssh://host",
                "--ssh",
                "sh -c 'echo Permission denied >&2; exit 255'",
            ],
            4,
            "key, agent",
        ),
    ] {
        let mut line = vec!["proxy"];
        line.extend(arguments);
        let (exit, errors) = desk.run(&line);
        assert!(!errors.contains("secret"), "{errors}");
        expect((exit, errors), code, &[words]);
    }
    let config = "ssh = 'false'\n[servers.far]\nurl = 'ssh://me@far:2222'\nssh-remote = '/opt/tunnel-server'\n\
                  [servers.near]\nurl = 'ssh://near'\nssh = 'echo'\n";
    let config = desk.file("desktop.toml", config, 0o600);
    let config = config.to_str().unwrap();
    let named = |name| desk.run(&["proxy", name, "--config", config]);
    expect(named("far"), 3, &["ssh://me@far:2222", "exit code 1"]);
    // The program of the server's own entry, which repeats what it is given.
    expect(named("near"), 3, &["-- near", "tunnel-server stdio"]);
}

#[test]
fn usage_mistakes_exit_2() {
    let desk = Desk::new();
    for (args, hints) in [
        (
            &["proxy", "nowhere"][..],
            &["\"nowhere\"", "address or name"][..],
        ),
        (&["proxy", "host:7070"], &["http://host:7070"]),
        (&["proxy", "http://h/?q"], &["without ?"]),
        (&["proxy", "http://h", "--session", "a b"], &["session"]),
        (&["proxy", "http://h", "--pin", "md5:1"], &["pin"]),
        (
            &["proxy", "http://h", "--header", "nonsense"],
            &["Name: value"],
        ),
        (&["proxy", "http://h", "--header", "Host: x"], &["host"]),
        (
            &["proxy", "http://h", "--header", "Authorization: Basic x"],
            &["Yonder-Token"],
        ),
        (&["proxy", "http://h", "--listen", "8080"], &["--listen"]),
        (&["proxy", "http://h", "--log", "lout"], &["log level"]),
        (&["proxy", "http://h", "--token", "x"], &["--token"]),
        (&["forward", "http://h"], &["nothing to forward"]),
        (&["forward", "http://h", "80:90"], &["80:localhost:90"]),
        (&["forward"], &["FORWARD"]),
        (&["open", "http://h", "--profile", "../x"], &["profile"]),
        (
            &["open", "http://h", "file:///etc/passwd"],
            &["file:///etc/passwd"],
        ),
        (&["frobnicate"], &["frobnicate"]),
    ] {
        let (code, errors) = desk.run(args);
        assert_eq!(code, 2, "{args:?}: {errors}");
        for hint in hints {
            assert!(
                errors.contains(hint),
                "{args:?}: {hint:?} is not in: {errors}"
            );
        }
    }
}

#[test]
fn passwords_in_addresses_are_not_repeated() {
    let (code, errors) = Desk::new().run(&["proxy", "http://me:hush@host"]);
    assert_eq!(code, 2);
    assert!(!errors.contains("hush"), "{errors}");
}

#[test]
fn the_token_file_must_be_private_and_there() {
    let desk = Desk::new();
    desk.file("token", "secret-of-the-test", 0o644);
    expect(desk.run(&["proxy", "http://h"]), 2, &["chmod 600"]);
    let missing = desk.folder.path().join("none");
    expect(
        desk.run(&[
            "proxy",
            "http://h",
            "--token-file",
            missing.to_str().unwrap(),
        ]),
        2,
        &["tunnel-server token"],
    );
    let empty = desk.file("empty", "\n", 0o600);
    expect(
        desk.run(&["proxy", "http://h", "--token-file", empty.to_str().unwrap()]),
        2,
        &["empty"],
    );
}

#[test]
fn the_token_may_come_in_the_environment() {
    let desk = Desk::new();
    std::fs::remove_file(desk.folder.path().join("token")).unwrap();
    let url = closed_port();
    let output = desk
        .command(&["proxy", &url])
        .env("YONDER_TOKEN", "secret-of-the-test")
        .output()
        .unwrap();
    expect(outcome(&output), 3, &["could not reach"]);
    let path = desk.file("elsewhere", "secret-of-the-test", 0o600);
    let output = desk
        .command(&["proxy", &url])
        .env("YONDER_TOKEN_FILE", path)
        .output()
        .unwrap();
    expect(outcome(&output), 3, &["could not reach"]);
    let help = desk
        .command(&["proxy", "--help"])
        .env("YONDER_TOKEN", "secret-of-the-test")
        .output()
        .unwrap();
    assert!(
        !String::from_utf8(help.stdout)
            .unwrap()
            .contains("secret-of-the-test")
    );
}

#[test]
fn a_server_that_is_not_there_exits_3() {
    let desk = Desk::new();
    let url = closed_port();
    for args in [
        &["proxy", &url][..],
        &["forward", &url, "0:localhost:80"],
        &["open", &url, "--headless", "--no-sandbox"],
    ] {
        expect(desk.run(args), 3, &["could not reach", "tunnel-server"]);
    }
    expect(desk.run(&["doctor", &url, "--no-sandbox"]), 1, &[]);
}

#[test]
fn a_server_that_refuses_exits_4() {
    let desk = Desk::new();
    let url = http_server(
        "HTTP/1.1 401 Unauthorized\r\nYonder-Version: 0.1.0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );
    for args in [
        &["proxy", &url][..],
        &["forward", &url, "0:localhost:80"],
        &["open", &url, "--headless", "--no-sandbox"],
    ] {
        expect(desk.run(args), 4, &["refused", "token"]);
    }
}

#[test]
fn an_answer_of_somebody_else_exits_3() {
    let url = http_server(
        "HTTP/1.1 200 OK\r\nContent-Length: 35\r\nConnection: close\r\n\r\n<html><title>Log in</title></html>\r\n",
    );
    expect(
        Desk::new().run(&["proxy", &url]),
        3,
        &["not as tunnel-server", "Log in"],
    );
}

#[test]
fn a_taken_port_exits_1() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    expect(
        Desk::new().run(&["forward", "http://127.0.0.1:1", &port]),
        1,
        &["could not listen", &port],
    );
}

#[test]
fn the_configuration_file_names_servers() {
    let desk = Desk::new();
    let url = closed_port();
    let good = desk.file(
        "desktop.toml",
        &format!("server = 'work'\n[servers.work]\nurl = '{url}'\n"),
        0o600,
    );
    let good = good.to_str().unwrap();
    for args in [
        &["--config", good, "proxy", "work"][..],
        &["--config", good, "proxy"],
    ] {
        expect(desk.run(args), 3, &["could not reach", &url]);
    }
    expect(
        desk.run(&["--config", good, "proxy", "play"]),
        2,
        &["play", "names work"],
    );
    let bad = desk.file(
        "bad.toml",
        "[servers.work]\nurl = 'http://h'\nspeed = 1",
        0o600,
    );
    expect(
        desk.run(&["--config", bad.to_str().unwrap(), "proxy", "work"]),
        2,
        &["servers.work", "speed", "token-file"],
    );
    expect(
        desk.run(&["--config", "/nonexistent.toml", "proxy", "work"]),
        2,
        &["/nonexistent.toml"],
    );
}

#[test]
fn the_local_server_is_the_default() {
    let desk = Desk::new();
    let url = closed_port();
    desk.file("server.json", &format!(r#"{{"url":"{url}"}}"#), 0o600);
    expect(desk.run(&["proxy"]), 3, &[&url]);
    expect(desk.run(&["forward", "0:localhost:80"]), 3, &[&url]);
}
