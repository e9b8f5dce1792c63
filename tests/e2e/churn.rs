//! Thousands of tunnels that come and go: no descriptor, task or memory stays behind.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use yonder_tests::eventually;
use yonder_tests::halves::{Desktop, Server};

/// Tunnels open at once: fewer than a listener's queue holds, or the targets of a busy machine would miss some.
const AT_ONCE: usize = 100;

/// Rounds of so many, where [`ROUNDS`] does not say otherwise: 10,000 tunnels.
const ROUNDS_USUAL: usize = 100;

/// Asks for another number of rounds: 1,000 make 100,000 tunnels.
const ROUNDS: &str = "YONDER_CHURN_ROUNDS";

/// Rounds after which caches and allocators have what they keep.
const WARM_UP: usize = 20;

/// What the memory of a half may grow by, in KiB, over all rounds behind the first ones: a leak of a hundred bytes a tunnel
/// is more, what allocators do to a process is less.
const GROWTH_KIB: u64 = 3 * 1024;

/// Descriptors and resident KiB of a process.
fn held(pid: u32) -> (usize, u64) {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let resident = line.and_then(|line| line.split_whitespace().nth(1));
    (descriptors, resident.unwrap().parse().unwrap())
}

/// Opens a tunnel and ends it in one of the ways that there are.
async fn come_and_go(port: u16, number: usize) {
    let mut client = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut byte = [0];
    match number % 4 {
        // In order, the client first.
        0 => {
            client.write_all(b"q").await.unwrap();
            client.shutdown().await.unwrap();
            client.read_exact(&mut byte).await.unwrap();
            assert_eq!(client.read(&mut byte).await.unwrap(), 0);
        }
        // The client goes away in the middle.
        1 => {
            client.write_all(b"q").await.unwrap();
            client.read_exact(&mut byte).await.unwrap();
        }
        // The target resets.
        2 => {
            client.write_all(b"r").await.unwrap();
            while matches!(client.read(&mut byte).await, Ok(1..)) {}
        }
        // Nothing is ever said.
        _ => {}
    }
}

/// Echoes one byte and waits for the end; an `r` is answered with a reset.
async fn answer(mut stream: TcpStream) {
    let mut byte = [0];
    while let Ok(1) = stream.read(&mut byte).await {
        if byte == *b"r" {
            stream.set_zero_linger().unwrap();
            return;
        }
        if stream.write_all(&byte).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn tunnels_that_come_and_go_leave_nothing_behind() {
    let rounds = std::env::var(ROUNDS).map_or(ROUNDS_USUAL, |rounds| rounds.parse().unwrap());
    let wanted = 8 * u64::try_from(AT_ONCE).unwrap();
    assert!(rlimit::increase_nofile_limit(wanted).unwrap() >= wanted);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let mut accepting = JoinSet::new();
    accepting.spawn(async move {
        let mut answers = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            answers.spawn(answer(stream));
            while answers.try_join_next().is_some() {}
        }
    });
    let server = Server::start().await;
    let (desktop, port) = Desktop::forward(&server, &server.url, &target.to_string()).await;
    let pids = [server.process.pid(), desktop.process.pid()];
    let mut before = Vec::new();
    for round in 0..WARM_UP + rounds {
        if round == WARM_UP {
            settled(&server).await;
            before = pids.map(held).to_vec();
        }
        let mut tunnels = JoinSet::new();
        for number in 0..AT_ONCE {
            tunnels.spawn(come_and_go(port, number));
        }
        tokio::time::timeout(Duration::from_mins(1), tunnels.join_all())
            .await
            .expect("no tunnel hangs");
    }
    settled(&server).await;
    eventually("descriptors are closed", async || {
        let now = pids.map(|pid| held(pid).0);
        let were = [before[0].0, before[1].0];
        // The status command's own connection may be open still.
        let closed = now.iter().zip(were).all(|(&now, were)| now <= were + 2);
        closed.then_some(()).ok_or((were, now))
    })
    .await;
    for (half, (pid, before)) in ["server", "desktop"].iter().zip(pids.iter().zip(&before)) {
        let (_, after) = held(*pid);
        println!(
            "{half} half: {} KiB before and {after} KiB after {} tunnels",
            before.1,
            rounds * AT_ONCE
        );
        assert!(
            after <= before.1 + GROWTH_KIB,
            "the {half} half grew from {} to {after} KiB",
            before.1
        );
    }
}

/// Waits until no tunnel is left on the server half.
async fn settled(server: &Server) {
    eventually("every tunnel is over", async || {
        let status = server.status().await;
        (status["totals"]["tunnelsOpen"] == 0)
            .then_some(())
            .ok_or_else(|| status["totals"].to_string())
    })
    .await;
}
