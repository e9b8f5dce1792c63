//! Thousands of tunnels that do nothing.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use yonder_protocol::limits::TUNNELS_PER_LINK;
use yonder_tests::halves::{Desktop, Server};
use yonder_tests::{PATIENCE, eventually};

/// Resident memory of a process in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn four_thousand_tunnels_are_held_and_released() {
    let wanted = u64::try_from(4 * TUNNELS_PER_LINK).unwrap();
    let got = rlimit::increase_nofile_limit(wanted).unwrap();
    assert!(
        got >= wanted,
        "this test needs {wanted} file descriptors and may have {got}"
    );

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let mut accepting = JoinSet::new();
    let (arrived, mut arrivals) = tokio::sync::mpsc::channel(TUNNELS_PER_LINK);
    accepting.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if arrived.send(stream).await.is_err() {
                break;
            }
        }
    });

    let server = Server::start().await;
    let (desktop, port) = Desktop::forward(&server, &server.url, &target.to_string()).await;
    let (server_pid, desktop_pid) = (server.process.pid(), desktop.process.pid());
    let before = (resident(server_pid), resident(desktop_pid));

    let mut clients = Vec::with_capacity(TUNNELS_PER_LINK);
    let mut targets = Vec::with_capacity(TUNNELS_PER_LINK);
    for _ in 0..TUNNELS_PER_LINK {
        clients.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
        targets.push(arrivals.recv().await.unwrap());
    }
    // The last and the first still carry bytes.
    for index in [0, TUNNELS_PER_LINK - 1] {
        clients[index].write_all(b"x").await.unwrap();
    }
    let status = server.status().await;
    assert_eq!(status["totals"]["tunnelsOpen"], TUNNELS_PER_LINK);

    let after = (resident(server_pid), resident(desktop_pid));
    for (half, before, after) in [
        ("server", before.0, after.0),
        ("desktop", before.1, after.1),
    ] {
        let each = (after.saturating_sub(before) * 1024) / TUNNELS_PER_LINK as u64;
        println!(
            "{half} half: {before} KiB idle, {after} KiB with {TUNNELS_PER_LINK} idle tunnels, {each} bytes each"
        );
    }

    // One more is refused, and harms none of the others.
    // Its reset may arrive before the connecting is even over.
    let refused = async {
        let mut surplus = TcpStream::connect(("127.0.0.1", port)).await?;
        surplus.read(&mut [0; 1]).await
    };
    let refused = timeout(PATIENCE, refused)
        .await
        .expect("an answer, not a hang");
    assert!(matches!(refused, Err(_) | Ok(0)));

    drop(desktop);
    eventually("the server half has released every tunnel", async || {
        let status = server.status().await;
        (status["totals"]["tunnelsOpen"] == 0)
            .then_some(())
            .ok_or_else(|| status["totals"].to_string())
    })
    .await;
    for mut stream in targets {
        // What the first and the last client sent may still be there to read.
        let ended = async { while let Ok(1..) = stream.read(&mut [0; 16]).await {} };
        timeout(PATIENCE, ended)
            .await
            .expect("the target sees the end");
    }
    let descriptors = std::fs::read_dir(format!("/proc/{server_pid}/fd"))
        .unwrap()
        .count();
    assert!(
        descriptors < 64,
        "{descriptors} descriptors are still open in the server half"
    );
}
