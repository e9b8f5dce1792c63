//! `tunnel-desktop forward` under clients of other people.

use std::fmt::Write as _;
use std::process::Stdio;

use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;
use yonder_tests::eventually;
use yonder_tests::halves::{Desktop, Server};
use yonder_tests::process::{Process, output};
use yonder_tests::site::hex;

const KEYS: usize = 50_000;

#[tokio::test]
async fn a_redis_session_runs_through_a_forward() {
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let _redis = Process::start(
        Command::new("redis-server")
            .args([
                "--bind",
                "127.0.0.1",
                "--port",
                &port.to_string(),
                "--save",
                "",
                "--dir",
            ])
            .arg(folder.path())
            .stdin(Stdio::null()),
    );
    eventually("redis listens", async || {
        TcpStream::connect(("127.0.0.1", port)).await
    })
    .await;
    let server = Server::start().await;
    let (_desktop, forwarded) =
        Desktop::forward(&server, &server.url, &format!("localhost:{port}")).await;
    let client = || {
        let mut command = Command::new("redis-cli");
        command
            .args(["-p", &forwarded.to_string()])
            .stdin(Stdio::null());
        command
    };
    assert_eq!(output(client().arg("PING")).await.stdout, b"PONG\n");

    // Mass insertion: many commands in flight, many answers on the way back.
    let mut commands = String::new();
    for number in 0..KEYS {
        let (key, value) = (format!("key:{number}"), "v".repeat(number % 64));
        let _ = write!(
            commands,
            "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n",
            key.len(),
            value.len()
        );
    }
    let mut pipe = client()
        .arg("--pipe")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut input = pipe.stdin.take().unwrap();
    input.write_all(commands.as_bytes()).await.unwrap();
    drop(input);
    let summary = pipe.wait_with_output().await.unwrap();
    let summary = String::from_utf8_lossy(&summary.stdout).into_owned();
    assert!(
        summary.contains(&format!("errors: 0, replies: {KEYS}")),
        "{summary}"
    );
    assert_eq!(
        output(client().arg("DBSIZE")).await.stdout,
        format!("{KEYS}\n").as_bytes()
    );
    assert_eq!(
        output(client().args(["GET", "key:63"])).await.stdout.len(),
        64
    );
}

#[tokio::test]
async fn a_half_closed_upload_gets_its_answer() {
    const BYTES: usize = 32 << 20;
    // Answers only after the client has ended its side, as `ssh host 'sha256sum'` does.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        while let count @ 1.. = stream.read(&mut buffer).await.unwrap() {
            hash.update(&buffer[..count]);
        }
        stream
            .write_all(hex(&hash.finalize()).as_bytes())
            .await
            .unwrap();
        stream.shutdown().await.unwrap();
    });
    let server = Server::start().await;
    let (_desktop, port) = Desktop::forward(&server, &server.url, &target.to_string()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data");
    let data: Vec<u8> = (0..BYTES)
        .map(|n| u8::try_from(n * 31 % 251).unwrap())
        .collect();
    std::fs::write(&file, &data).unwrap();
    let answer = output(
        Command::new("nc")
            .args(["-N", "127.0.0.1", &port.to_string()])
            .stdin(Stdio::from(std::fs::File::open(&file).unwrap())),
    )
    .await;
    assert_eq!(
        String::from_utf8_lossy(&answer.stdout),
        hex(&Sha256::digest(&data))
    );
}

#[tokio::test]
async fn a_reset_of_the_target_is_a_reset_for_the_client() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let server = Server::start().await;
    let (_desktop, port) = Desktop::forward(&server, &server.url, &target.to_string()).await;
    let mut client = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting).await.unwrap();
    stream.set_zero_linger().unwrap();
    drop(stream);
    let error = client.read(&mut [0; 16]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}
