//! `tunnel-desktop bench` against a real server half.

use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;
use yonder_tests::halves::Server;
use yonder_tests::process::{output, program};
use yonder_tests::sshd::Sshd;

/// A bench that is over soon.
fn bench(url: &str) -> Command {
    let mut command = Command::new(program("tunnel-desktop"));
    command
        .args(["bench", url, "--duration", "1", "--bytes", "20M"])
        .stdin(Stdio::null());
    command
}

async fn stdout(command: &mut Command) -> String {
    let output = output(command).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// What every report must hold.
fn check(report: &Value) {
    for times in [&report["roundTrip"], &report["open"]] {
        assert!(times["count"].as_u64() > Some(0), "{report}");
        assert!(times["p50Ms"].as_f64() > Some(0.0), "{report}");
        assert!(
            times["p99Ms"].as_f64() >= times["p50Ms"].as_f64(),
            "{report}"
        );
    }
    let transfers = report["transfers"].as_array().unwrap();
    let kinds: Vec<_> = transfers
        .iter()
        .map(|transfer| {
            (
                transfer["direction"].as_str().unwrap(),
                transfer["streams"].as_u64().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("download", 1),
        ("download", 8),
        ("upload", 1),
        ("upload", 8),
    ];
    assert_eq!(kinds, expected);
    let moved = |direction: &str| -> u64 {
        transfers
            .iter()
            .filter(|transfer| transfer["direction"] == direction)
            .map(|transfer| {
                let bytes = transfer["bytes"].as_u64().unwrap();
                assert!((1..=20_000_000).contains(&bytes), "{report}");
                assert!(transfer["bytesPerSecond"].as_f64() > Some(0.0), "{report}");
                bytes
            })
            .sum()
    };
    // The link's own figures hold at least what arrived.
    assert!(
        report["bytesReceived"].as_u64() >= Some(moved("download")),
        "{report}"
    );
    assert!(
        report["bytesSent"].as_u64() >= Some(moved("upload")),
        "{report}"
    );
}

#[tokio::test]
async fn the_report_is_json_for_programs() {
    let server = Server::start().await;
    let mut command = bench(&server.url);
    command.arg("--json").arg("--state-dir").arg(server.state());
    let report: Value = serde_json::from_str(&stdout(&mut command).await).unwrap();
    check(&report);
    assert_eq!(report["carrierKind"], "websocket");
    // Every stream of it is gone on the server half as well.
    assert_eq!(server.status().await["totals"]["tunnelsOpen"], 0);
}

#[tokio::test]
async fn the_report_is_a_table_for_people() {
    let server = Server::start().await;
    let mut command = bench(&server.url);
    command.arg("--state-dir").arg(server.state());
    let table = stdout(&mut command).await;
    for label in [
        "round trip",
        "open and first byte",
        "round trip beside upload",
        "download, 1 stream",
        "upload, 8 streams",
        "moved",
    ] {
        let line = table.lines().find(|line| line.starts_with(label));
        assert!(line.is_some(), "{label}: {table}");
    }
    assert!(!table.contains('\x1b'), "{table}");
}

#[tokio::test]
async fn ssh_is_measured_like_any_other_way() {
    let server = Server::start().await;
    let sshd = Sshd::start(&[], None).await;
    let remote = format!(
        "{} --state-dir {}",
        program("tunnel-server").display(),
        server.state().display()
    );
    let mut command = bench("ssh://far");
    command.args(["--json", "--ssh", &sshd.client(), "--ssh-remote", &remote]);
    let report: Value = serde_json::from_str(&stdout(&mut command).await).unwrap();
    check(&report);
    assert_eq!(report["carrierKind"], "stdio");
}
