//! Commands, settings and exit codes.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use crate::support::{Server, program, run, told};

/// Runs a command that must end with `code` and say `words` on standard error.
fn fails(state: &Path, arguments: &[&str], code: i32, words: &[&str]) {
    let (got, out, err) = told(&run(state, arguments));
    assert_eq!(got, code, "{arguments:?}: {out}{err}");
    assert!(out.is_empty(), "{arguments:?}: {out}");
    for words in words {
        assert!(
            err.contains(words),
            "{arguments:?}: {words:?} not in {err:?}"
        );
    }
}

#[test]
fn help_and_version_end_well_and_hide_secrets() {
    let state = tempfile::tempdir().unwrap();
    for arguments in [&["--help"][..], &["serve", "--help"], &["call", "--help"]] {
        let output = program(state.path())
            .args(arguments)
            .env("YONDER_TOKEN", "a-secret-in-the-environment")
            .output()
            .unwrap();
        let (code, out, _) = told(&output);
        assert_eq!(code, 0);
        assert!(!out.contains("a-secret"), "{out}");
    }
    let (code, out, _) = told(&run(state.path(), &["--version"]));
    assert_eq!(
        (code, out.as_str()),
        (
            0,
            concat!("tunnel-server ", env!("CARGO_PKG_VERSION"), "\n")
        )
    );
}

#[test]
fn wrong_command_lines_and_settings_end_with_two() {
    let base = tempfile::tempdir().unwrap();
    let state = base.path().join("state");
    let config = base.path().join("config.toml");
    fs::write(&config, "lisen = \"127.0.0.1:0\"\n").unwrap();
    let config = config.to_str().unwrap();
    for (arguments, words) in [
        (&["--nonsense"][..], &["--nonsense"][..]),
        (&["nonsense"], &["nonsense"]),
        (&["stdio", "--verbose"], &["--verbose"]),
        (&["--listen", "127.0.0.1:0", "stdio"], &["`serve`"]),
        (
            &["--config", config],
            &["config.toml", "\"lisen\"", "listen"],
        ),
        (&["--config", "/nonexistent.toml"], &["/nonexistent.toml"]),
        (&["--listen", "nowhere"], &["127.0.0.1:7070"]),
        (
            &["--listen", "0.0.0.0:0"],
            &["--tls-self-signed", "--plaintext"],
        ),
        (
            &["--listen", "127.0.0.1:0", "--tls-cert", "x"],
            &["--tls-key"],
        ),
        (
            &[
                "--listen",
                "127.0.0.1:0",
                "--tls-cert",
                "/none",
                "--tls-key",
                "/none",
            ],
            &["/none"],
        ),
        (
            &["--listen", "127.0.0.1:0", "--token-file", "/none"],
            &["/none"],
        ),
        (
            &["--log", "loud=very=", "--listen", "127.0.0.1:0"],
            &["log"],
        ),
        (
            &["--egress", "open"],
            &["unrestricted, allowlist or strict"],
        ),
        (&["--deny-network", "10.0.0.0/99"], &["10.0.0.0/99"]),
        (&["--listen", "127.0.0.1:0", "status"], &["serve"]),
        (&["status", "--server", "ftp://x"], &["http://"]),
        (&["status", "--pin", "sha256:0"], &["sha256"]),
        (&["call", "nothing"], &["tabs.list"]),
        (&["call", "lighthouse"], &["not available in this version"]),
        (&["call", "tabs.list", "{"], &["not JSON"]),
        (&["call", "tabs.list", "{\"x\":1}"], &["takes no arguments"]),
        (&["call", "tabs.list", "--session", "a b"], &["session"]),
    ] {
        fails(&state, arguments, 2, words);
    }
}

#[test]
fn a_server_that_does_not_run_ends_with_three() {
    let state = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://{free}");
    for arguments in [
        &["status", "--server", &url][..],
        &["status", "--json", "--server", &url],
        &["call", "tabs.list", "--server", &url],
        &["mcp", "--server", &url],
    ] {
        fails(state.path(), arguments, 3, &["could not reach"]);
    }
}

#[test]
fn a_wrong_token_ends_with_four() {
    let server = Server::start(&[]);
    let other = tempfile::tempdir().unwrap();
    for arguments in [
        &["status", "--server", &server.url][..],
        &["call", "tabs.list", "--server", &server.url],
        &["mcp", "--server", &server.url],
    ] {
        // No token at all, then a wrong one.
        fails(other.path(), arguments, 4, &["token"]);
        let output = program(other.path())
            .args(arguments)
            .env("YONDER_TOKEN", "wrong-wrong-wrong")
            .output()
            .unwrap();
        let (code, _, err) = told(&output);
        assert_eq!(code, 4, "{err}");
        assert!(!err.contains("wrong-wrong"), "{err}");
    }
}

#[test]
fn token_files_that_others_may_read_or_that_hold_nothing_are_refused() {
    let base = tempfile::tempdir().unwrap();
    let state = base.path().join("state");
    fs::create_dir(&state).unwrap();
    let token = state.join("token");
    for (content, mode, words) in [
        ("a-token-of-some-length", 0o644, "chmod 600"),
        ("a-token-of-some-length", 0o640, "chmod 600"),
        ("", 0o600, "empty"),
        (" \n", 0o600, "empty"),
        ("a token", 0o600, "visible ASCII"),
    ] {
        fs::write(&token, content).unwrap();
        fs::set_permissions(&token, Permissions::from_mode(mode)).unwrap();
        for arguments in [&["--listen", "127.0.0.1:0"][..], &["status"], &["token"]] {
            fails(&state, arguments, 2, &[words, token.to_str().unwrap()]);
        }
    }
    fs::remove_file(&token).unwrap();
    fs::create_dir(&token).unwrap();
    fails(
        &state,
        &["--listen", "127.0.0.1:0"],
        2,
        &["cannot read the token file"],
    );
}

#[test]
fn a_token_from_the_environment_or_a_named_file_is_used() {
    let base = tempfile::tempdir().unwrap();
    let state = base.path().join("state");
    let mut server = Server::start_in(&state, &[], &[("YONDER_TOKEN", "from-the-environment")]);
    "from-the-environment".clone_into(&mut server.token);
    assert_eq!(server.send("GET", "/status", "").status, 200);
    assert!(!state.join("token").exists());
    drop(server);
    let file = base.path().join("secret");
    fs::write(&file, "from-a-named-file\n").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o400)).unwrap();
    let mut server = Server::start_in(
        &state,
        &["--token-file", file.to_str().unwrap()],
        &[("YONDER_TOKEN", "from-the-environment")],
    );
    "from-a-named-file".clone_into(&mut server.token);
    assert_eq!(server.send("GET", "/status", "").status, 200);
}

#[test]
fn the_token_command_prints_the_path_and_never_the_token() {
    let base = tempfile::tempdir().unwrap();
    let state = base.path().join("deep/state");
    let (code, out, err) = told(&run(&state, &["token"]));
    assert_eq!(
        (code, out.trim_end()),
        (0, state.join("token").to_str().unwrap()),
        "{err}"
    );
    let token = fs::read_to_string(state.join("token")).unwrap();
    assert!(token.trim_end().len() >= 43 && !out.contains(token.trim_end()));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&state), mode(&state.join("token"))), (0o700, 0o600));
    run(&state, &["token", "--rotate"]);
    assert_ne!(fs::read_to_string(state.join("token")).unwrap(), token);
    let environment = program(&state)
        .arg("token")
        .env("YONDER_TOKEN", "x")
        .output()
        .unwrap();
    assert_eq!(told(&environment).0, 2);
}

#[test]
fn flags_win_over_the_environment_and_the_environment_over_the_file() {
    let base = tempfile::tempdir().unwrap();
    let config = base.path().join("config.toml");
    fs::write(&config, "path-prefix = \"/file\"\nallow-origin = [\"http://file.example\"]\nlisten = \"127.0.0.1:0\"\n")
        .unwrap();
    let config = ["--config", config.to_str().unwrap()];
    let listen = ("YONDER_LISTEN", "127.0.0.1:0");
    let state = |name: &str| base.path().join(name);
    let server = Server::start_in(&state("a"), &config, &[listen]);
    assert!(server.url.ends_with("/file"), "{}", server.url);
    let environment = [listen, ("YONDER_PATH_PREFIX", "/environment")];
    let server = Server::start_in(&state("b"), &config, &environment);
    assert!(server.url.ends_with("/environment"), "{}", server.url);
    let flags = [&config[..], &["--path-prefix", "/flag"]].concat();
    let server = Server::start_in(&state("c"), &flags, &environment);
    assert!(server.url.ends_with("/flag"), "{}", server.url);
}

#[test]
fn a_taken_port_ends_with_one() {
    let state = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    fails(
        state.path(),
        &["--listen", &address],
        1,
        &[&address, "in use"],
    );
}

#[test]
fn a_second_server_on_a_state_directory_names_the_first() {
    let server = Server::start(&[]);
    let words = [server.url.as_str(), "--state-dir"];
    fails(&server.state_path, &["--listen", "127.0.0.1:0"], 2, &words);
    assert_eq!(server.send("GET", "/status", "").status, 200);
}

#[test]
fn commands_find_the_local_server_by_themselves() {
    let server = Server::start(&[]);
    let (code, out, err) = server.run(&["status"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("no desktop is attached"), "{out}");
    let (code, out, _) = server.run(&["status", "--json"]);
    assert_eq!(code, 0);
    assert!(serde_json::from_str::<serde_json::Value>(&out).unwrap()["links"].is_array());
    let (code, out, err) = server.run(&["call", "tabs.list"]);
    assert_eq!((code, out.as_str()), (3, ""), "{err}");
    assert!(err.contains("no desktop is attached"), "{err}");
    let (code, out, err) = server.run(&["doctor"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(
        out.contains("ok    server half") && !out.contains("fail"),
        "{out}"
    );
}

#[test]
fn doctor_fails_on_what_would_stop_a_server() {
    let base = tempfile::tempdir().unwrap();
    let state = base.path().join("state");
    let (code, out, _) = told(&run(&state, &["doctor"]));
    assert_eq!(code, i32::from(out.contains("fail")), "{out}");
    run(&state, &["token"]);
    fs::set_permissions(state.join("token"), Permissions::from_mode(0o604)).unwrap();
    let (code, out, _) = told(&run(&state, &["doctor"]));
    assert_eq!(code, 1);
    assert!(
        out.contains("fail  token") && out.contains("chmod 600"),
        "{out}"
    );
}

#[test]
fn mcp_speaks_over_standard_input_and_output() {
    let server = Server::start(&[]);
    let mut child = program(&server.state_path)
        .arg("mcp")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    writeln!(
        input,
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-06-18","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
    )
    .unwrap();
    assert!(lines.next().unwrap().unwrap().contains("serverInfo"));
    writeln!(
        input,
        r#"{{"jsonrpc":"2.0","method":"notifications/initialized"}}"#
    )
    .unwrap();
    writeln!(input, r#"{{"jsonrpc":"2.0","id":2,"method":"tools/list"}}"#).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(answer["result"]["tools"], serde_json::json!([]));
    drop(input);
    assert!(child.wait().unwrap().success());
}
