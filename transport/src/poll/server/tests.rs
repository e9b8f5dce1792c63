use proptest::prelude::*;
use tokio::io::AsyncWriteExt as _;

use super::*;

struct Client {
    server: Arc<PollServer>,
    id: String,
}

impl Client {
    fn request(&self, direction: &str, sequence: u64, body: &[u8]) -> Request<Full<Bytes>> {
        Request::post("/link")
            .header(CARRIER, &self.id)
            .header(DIRECTION, direction)
            .header(SEQUENCE, sequence)
            .body(Full::new(Bytes::copy_from_slice(body)))
            .expect("valid")
    }

    async fn upload(&self, sequence: u64, body: &[u8]) -> Response<Full<Bytes>> {
        self.server.handle(self.request(UP, sequence, body)).await
    }

    async fn poll(&self, sequence: u64) -> Response<Full<Bytes>> {
        self.server.handle(self.request(DOWN, sequence, b"")).await
    }
}

fn opening() -> Request<Full<Bytes>> {
    Request::post("/link")
        .header(CARRIER, OPEN)
        .body(Full::default())
        .expect("valid")
}

async fn open() -> (Client, Carrier) {
    let (server, mut opened) = PollServer::new(PollConfig::default());
    let answer = server.handle(opening()).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let id = text(answer.headers(), &CARRIER)
        .expect("an identifier")
        .to_owned();
    let carrier = opened.recv().await.expect("a carrier");
    assert_eq!(carrier.kind, CarrierKind::Poll);
    let server = Arc::new(server);
    (Client { server, id }, carrier)
}

async fn body(answer: Response<Full<Bytes>>) -> Bytes {
    answer
        .into_body()
        .collect()
        .await
        .expect("whole")
        .to_bytes()
}

fn accepted(answer: &Response<Full<Bytes>>) -> usize {
    text(answer.headers(), &ACCEPTED)
        .expect("says how much")
        .parse()
        .expect("a number")
}

#[test]
fn turns_tell_repetitions_from_gaps() {
    let mut turns = Turns::default();
    assert_eq!(turns.take(0), Turn::Gap);
    assert_eq!(turns.take(2), Turn::Gap);
    assert_eq!(turns.take(1), Turn::New);
    assert_eq!(turns.take(1), Turn::Resumed);
    assert_eq!(turns.take(2), Turn::Gap, "1 has no answer yet");
    turns.answered = true;
    assert_eq!(turns.take(1), Turn::Again);
    assert_eq!(turns.take(2), Turn::New);
    assert_eq!(turns.take(1), Turn::Stale);
}

#[tokio::test(start_paused = true)]
async fn bytes_pass_both_ways_and_repetitions_change_nothing() {
    let (client, mut carrier) = open().await;
    for _ in 0..3 {
        assert_eq!(accepted(&client.upload(1, b"to the server").await), 13);
    }
    assert_eq!(accepted(&client.upload(2, b"!").await), 1);
    let stale = client.upload(1, b"to the server").await;
    assert_eq!(stale.status(), StatusCode::CONFLICT);
    assert!(!stale.headers().contains_key(CLOSED));
    let mut got = [0; 14];
    carrier.io.read_exact(&mut got).await.expect("reads");
    assert_eq!(&got, b"to the server!");

    carrier
        .io
        .write_all(b"to the client")
        .await
        .expect("writes");
    for _ in 0..3 {
        assert_eq!(body(client.poll(1).await).await, "to the client");
    }
    carrier.io.write_all(b"!").await.expect("writes");
    assert_eq!(body(client.poll(2).await).await, "!");
}

#[tokio::test(start_paused = true)]
async fn an_idle_poll_ends_by_the_servers_clock() {
    let (client, _carrier) = open().await;
    for (sequence, header, seconds) in [
        (1, None, 10),
        (2, Some((HOLD, "20")), 20),
        (3, Some((HOLD, "100")), 25),
        (4, Some((ENVOY_LIMIT, "15000")), 10),
        (5, Some((ENVOY_LIMIT, "3000")), 2),
    ] {
        let mut request = client.request(DOWN, sequence, b"");
        if let Some((name, value)) = header {
            request
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        let started = Instant::now();
        let answer = client.server.handle(request).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert!(body(answer).await.is_empty());
        assert_eq!(started.elapsed().as_secs(), seconds, "poll {sequence}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_stays_empty_when_repeated() {
    let (client, mut carrier) = open().await;
    assert!(body(client.poll(1).await).await.is_empty());
    carrier.io.write_all(b"later").await.expect("writes");
    assert!(
        body(client.poll(1).await).await.is_empty(),
        "the client may have gone on from the first answer"
    );
    assert_eq!(body(client.poll(2).await).await, "later");
}

#[tokio::test(start_paused = true)]
async fn an_upload_without_room_is_taken_in_part_and_in_time() {
    let (client, mut carrier) = open().await;
    let chunk = vec![7; 700_000];
    assert_eq!(accepted(&client.upload(1, &chunk).await), chunk.len());
    let started = Instant::now();
    let taken = accepted(&client.upload(2, &chunk).await);
    assert_eq!(taken, PIPE_BYTES - chunk.len());
    assert_eq!(started.elapsed(), ROOM_LIMIT);
    assert_eq!(accepted(&client.upload(2, &chunk).await), taken);
    assert_eq!(accepted(&client.upload(3, &chunk).await), 0);

    let mut got = vec![0; PIPE_BYTES];
    carrier.io.read_exact(&mut got).await.expect("reads");
    assert_eq!(
        accepted(&client.upload(4, &chunk[taken..]).await),
        chunk.len() - taken
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_bounded() {
    let (client, carrier) = open().await;
    let (mut reader, mut writer) = tokio::io::split(carrier.io);
    let write = async {
        writer
            .write_all(&vec![1; 3 * ANSWER_BYTES_MAX])
            .await
            .expect("writes");
    };
    let fetch = async {
        let mut fetched = 0;
        for sequence in 1.. {
            let bytes = body(client.poll(sequence).await).await;
            assert!(bytes.len() <= ANSWER_BYTES_MAX);
            fetched += bytes.len();
            if fetched == 3 * ANSWER_BYTES_MAX {
                break;
            }
        }
    };
    tokio::join!(write, fetch);
    drop(client);
    let mut rest = Vec::new();
    reader
        .read_to_end(&mut rest)
        .await
        .expect("the server is gone");
    assert!(rest.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_gap_ends_the_carrier() {
    for direction in [UP, DOWN] {
        let (client, mut carrier) = open().await;
        let answer = client
            .server
            .handle(client.request(direction, 2, b"x"))
            .await;
        assert_eq!(answer.status(), StatusCode::CONFLICT);
        assert!(answer.headers().contains_key(CLOSED));
        assert_eq!(carrier.io.read(&mut [0; 1]).await.expect("an end"), 0);
        assert_eq!(client.poll(1).await.status(), StatusCode::GONE);
        assert!(client.server.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_gap_ends_a_held_poll_too() {
    let (client, _carrier) = open().await;
    let started = Instant::now();
    let (held, _) = tokio::join!(client.poll(1), client.upload(9, b""));
    assert_eq!(held.status(), StatusCode::GONE);
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn each_side_learns_that_the_other_closed() {
    let (client, mut carrier) = open().await;
    let mut last = client.request(UP, 1, b"bye");
    last.headers_mut()
        .insert(CLOSED, HeaderValue::from_static("1"));
    assert_eq!(accepted(&client.server.handle(last).await), 3);
    let mut got = Vec::new();
    carrier.io.read_to_end(&mut got).await.expect("reads");
    assert_eq!(got, b"bye");

    carrier.io.write_all(b"so long").await.expect("writes");
    drop(carrier);
    let answer = client.poll(1).await;
    assert!(answer.headers().contains_key(CLOSED));
    assert_eq!(body(answer).await, "so long");
    let upload = client.upload(2, b"anyone?").await;
    assert!(upload.headers().contains_key(CLOSED));
}

#[tokio::test(start_paused = true)]
async fn a_carrier_left_alone_is_reaped() {
    let (client, mut carrier) = open().await;
    client.poll(1).await;
    tokio::time::sleep(IDLE_LIMIT / 2).await;
    client.poll(2).await;
    tokio::time::sleep(IDLE_LIMIT / 2).await;
    assert_eq!(client.server.len(), 1);
    let left = Instant::now();
    assert_eq!(carrier.io.read(&mut [0; 1]).await.expect("an end"), 0);
    assert!(left.elapsed() <= IDLE_LIMIT);
    assert!(client.server.is_empty());
}

#[tokio::test(start_paused = true)]
async fn carriers_are_bounded() {
    let (server, mut opened) = PollServer::new(PollConfig {
        carriers_max: 2,
        waiting_max: 1,
    });
    assert_eq!(server.handle(opening()).await.status(), StatusCode::OK);
    let nobody_took_the_first = server.handle(opening()).await;
    assert_eq!(
        nobody_took_the_first.status(),
        StatusCode::SERVICE_UNAVAILABLE
    );
    let first = opened.recv().await.expect("a carrier");
    assert_eq!(server.handle(opening()).await.status(), StatusCode::OK);
    let second = opened.recv().await.expect("a carrier");
    let third = server.handle(opening()).await;
    assert_eq!(third.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(third.headers().contains_key(RETRY_AFTER));
    assert_eq!(server.len(), 2);
    drop((first, second));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_request_of_a_carrier_is_refused() {
    let (client, _carrier) = open().await;
    let bare = Request::post("/link").body(Full::default()).expect("valid");
    assert_eq!(
        client.server.handle(bare).await.status(),
        StatusCode::BAD_REQUEST
    );
    let sideways = client.request("sideways", 1, b"");
    assert_eq!(
        client.server.handle(sideways).await.status(),
        StatusCode::BAD_REQUEST
    );
    let mut unnumbered = client.request(UP, 1, b"");
    unnumbered
        .headers_mut()
        .insert(SEQUENCE, HeaderValue::from_static("first"));
    assert_eq!(
        client.server.handle(unnumbered).await.status(),
        StatusCode::BAD_REQUEST
    );
    let large = client.upload(1, &vec![0; UPLOAD_BYTES_MAX + 1]).await;
    assert_eq!(large.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert!(large.headers().contains_key(VERSION_HEADER));
    assert_eq!(accepted(&client.upload(1, b"still well").await), 10);
}

/// What the way does to a request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Once,
    /// Its answer is lost, so it comes again.
    Again,
    /// Its connection breaks while the server is at it, so it comes again.
    Cut,
    /// A proxy delivers it twice at the same time.
    Twin,
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    prop::collection::vec(
        prop_oneof![
            Just(Fate::Once),
            Just(Fate::Again),
            Just(Fate::Cut),
            Just(Fate::Twin)
        ],
        1..40,
    )
}

impl Client {
    /// Brings one request through with `fate`, and returns the answer that the client takes.
    async fn deliver(
        &self,
        fate: Fate,
        make: impl Fn() -> Request<Full<Bytes>>,
    ) -> Response<Full<Bytes>> {
        match fate {
            Fate::Once => {}
            Fate::Again => drop(self.server.handle(make()).await),
            Fate::Cut => {
                let cut = self.server.handle(make());
                drop(timeout(Duration::from_millis(1), cut).await);
            }
            Fate::Twin => {
                let (first, second) =
                    tokio::join!(self.server.handle(make()), self.server.handle(make()));
                let first_body = body(first).await;
                assert_eq!(first_body, body(second).await);
                // The client sees either; the repetition below gives the same once more.
            }
        }
        self.server.handle(make()).await
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_happens_on_the_way_bytes_arrive_once_and_in_order(
        sent in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200_000), 1..12),
        ups in fates(),
        downs in fates(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (client, carrier) = open().await;
            let expected = sent.concat();
            // The server half echoes, at a pace of its own.
            let (mut reader, mut writer) = tokio::io::split(carrier.io);
            let echo = async {
                let mut buffer = vec![0; 30_000];
                loop {
                    match reader.read(&mut buffer).await.expect("reads") {
                        0 => break,
                        n => writer.write_all(&buffer[..n]).await.expect("writes"),
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                writer.shutdown().await.expect("closes");
            };
            let upload = async {
                let mut fates = ups.iter().copied().cycle();
                let mut sequence = 0;
                for (i, chunk) in sent.iter().enumerate() {
                    let mut rest = chunk.as_slice();
                    while !rest.is_empty() {
                        sequence += 1;
                        let answer = client.deliver(fates.next().expect("cycles"), || {
                            let mut request = client.request(UP, sequence, rest);
                            if i + 1 == sent.len() {
                                request.headers_mut().insert(CLOSED, HeaderValue::from_static("1"));
                            }
                            request
                        }).await;
                        rest = &rest[accepted(&answer)..];
                    }
                }
            };
            let fetch = async {
                let mut fates = downs.iter().copied().cycle();
                let mut got = Vec::new();
                for sequence in 1.. {
                    let answer = client.deliver(fates.next().expect("cycles"), || client.request(DOWN, sequence, b"")).await;
                    let closed = answer.headers().contains_key(CLOSED);
                    got.extend_from_slice(&body(answer).await);
                    if closed {
                        break;
                    }
                }
                got
            };
            let ((), (), got) = tokio::join!(echo, upload, fetch);
            assert!(got == expected, "{} bytes came, {} were sent", got.len(), expected.len());
        });
    }
}
