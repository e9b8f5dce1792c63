//! Requests that carry a link.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Builder;
use yonder_transport::poll::{PollConfig, PollServer};

/// What the server half writes: enough for many answers.
const DOWN_BYTES: usize = 100_000;

/// Headers that a request may have, each of whose values the input chooses.
const HEADERS: [&str; 6] = [
    "yonder-sequence",
    "yonder-direction",
    "yonder-carrier",
    "yonder-hold",
    "yonder-closed",
    "x-envoy-expected-rq-timeout-ms",
];

/// Runs the requests that `input` spells, one a line, against a carrier: repeated, skipped, mangled. A line is its words in
/// the order of [`HEADERS`], then its body; `-` leaves a header out and `=` names the carrier. Bytes must arrive in order and
/// once, and an answer that is repeated must be the same.
pub fn poll_requests(input: &[u8]) {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    if let Ok(runtime) = runtime {
        runtime.block_on(run(input));
    }
}

async fn run(input: &[u8]) {
    let (server, mut opened) = PollServer::new(PollConfig::default());
    let answer = server
        .handle(request(&[b"-", b"-", b"open"], b"", None))
        .await;
    let id = answer.headers().get("yonder-carrier").cloned();
    let (Some(id), Some(carrier)) = (id, opened.recv().await) else {
        unreachable!("a carrier is refused");
    };
    let (mut reader, mut writer) = tokio::io::split(carrier.io);
    let down: Vec<u8> = (0..=250).cycle().take(DOWN_BYTES).collect();
    let written = writer.write_all(&down).await;
    assert!(written.is_ok(), "what fits is not taken");

    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let (mut last_up, mut last_down) = (0, 0);
    for line in input.split(|&byte| byte == b'\n') {
        let words: Vec<&[u8]> = line
            .splitn(HEADERS.len() + 1, |&byte| byte == b' ')
            .collect();
        let (headers, body) = match words.split_at_checked(HEADERS.len()) {
            Some((headers, [body])) => (headers, *body),
            _ => (&words[..], &b""[..]),
        };
        let sequence = headers
            .first()
            .and_then(|word| std::str::from_utf8(word).ok());
        let sequence = sequence.and_then(|word| word.parse::<u64>().ok());
        let answer = server.handle(request(headers, body, Some(&id))).await;
        let (head, answer) = answer.into_parts();
        let Ok(answer) = answer.collect().await;
        let answer = answer.to_bytes();
        if head.status != StatusCode::OK || headers.get(2) != Some(&&b"="[..]) {
            continue;
        }
        match (headers.get(1), sequence) {
            (Some(&b"up"), Some(number)) if number > last_up => {
                last_up = number;
                let accepted = head.headers.get("yonder-accepted");
                let accepted = accepted.and_then(|value| value.to_str().ok()?.parse().ok());
                sent.extend_from_slice(&body[..accepted.unwrap_or(0)]);
            }
            (Some(&b"down"), Some(number)) if number > last_down => {
                last_down = number;
                received.extend_from_slice(&answer);
            }
            (Some(&b"down"), Some(_)) => {
                assert!(received.ends_with(&answer), "an answer changed");
            }
            _ => {}
        }
    }
    assert!(
        down.starts_with(&received),
        "lost, repeated or altered on the way down"
    );
    drop((server, writer));
    let mut arrived = Vec::new();
    // A carrier that ends in the middle reads as an end.
    let _ = reader.read_to_end(&mut arrived).await;
    assert!(arrived == sent, "lost, repeated or altered on the way up");
}

fn request(words: &[&[u8]], body: &[u8], carrier: Option<&HeaderValue>) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(Bytes::copy_from_slice(body)));
    *request.method_mut() = Method::POST;
    for (name, word) in HEADERS.into_iter().zip(words) {
        let value = match (*word, carrier) {
            (b"-", _) => None,
            (b"=", Some(carrier)) => Some(carrier.clone()),
            (word, _) => HeaderValue::from_bytes(word).ok(),
        };
        if let Some(value) = value {
            request.headers_mut().insert(name, value);
        }
    }
    request
}
