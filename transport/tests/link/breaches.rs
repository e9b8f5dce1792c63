//! A peer that breaks the rules of the wire, one by one, on both halves: its link ends with the name of the rule, on the
//! wire, in the log and for whoever holds the link; every other link goes on.

mod rules;

use std::io;
use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tracing_subscriber::fmt::MakeWriter;
use yonder_protocol::TunnelErrorCode;
use yonder_protocol::link::frame::{Control, ProtocolError};
use yonder_protocol::link::hello::{Answer, Hello, Welcome, take_message};
use yonder_protocol::link::{CloseCode, LinkId, ResumeSecret, Role, SessionName};
use yonder_transport::carrier::{Carrier, CarrierKind, Connect, ConnectError};
use yonder_transport::client::{ClientHello, Connected, connect};
use yonder_transport::link::{CloseReason, Link};

use self::rules::{DATA, OPEN, RESET, breaches, frame, header, opening};
use crate::world::{Pair, World, next, within};

/// Collects the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Log {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
    }
}

/// Breaks a rule on `pipe` once the other half has shown its first stream, and checks that `link` ends by its name.
async fn breach(mut pipe: DuplexStream, link: &Link, log: &Log, wire: &[u8], rule: &ProtocolError) {
    // A broken rule may come in two reads.
    let (first, rest) = wire.split_at(wire.len() / 2);
    pipe.write_all(first).await.unwrap();
    pipe.flush().await.unwrap();
    pipe.write_all(rest).await.unwrap();
    let rule = rule.to_string();
    let reason = within(link.closed()).await;
    assert_eq!(reason, CloseReason::Protocol(rule.clone()));

    let mut said = Vec::new();
    within(pipe.read_to_end(&mut said)).await.unwrap();
    let mut farewell = BytesMut::new();
    Control::GoAway {
        code: CloseCode::Protocol,
        text: rule.clone(),
    }
    .encode(&mut farewell);
    assert!(said.ends_with(&farewell), "{rule}: {said:?}");

    let line = format!("the other half broke the link protocol: {rule}");
    let log = log.take();
    assert!(log.contains(&line), "{line:?} is not in the log:\n{log}");
    let error = link.open_call().unwrap_err();
    assert_eq!(error.code, TunnelErrorCode::LinkDown);
    assert!(error.message.contains(&rule), "{error}");
}

/// Shows that another link is as it was.
async fn is_unharmed(pair: &mut Pair) {
    let mut stream = pair.client.open_call().unwrap();
    stream.write_all(b"fine").await.unwrap();
    let mut far = next(&mut pair.server_incoming).await.stream;
    within(far.read_exact(&mut [0; 4])).await.unwrap();
}

fn hello() -> Hello {
    Hello {
        link: LinkId::NEW,
        lane: 0,
        secret: ResumeSecret::new([7; 32]),
        received: 0,
        role: Role::Tunnels,
        session: SessionName::default(),
        agent: "a hand-written client".to_owned(),
        data_max: 65_536,
        window: 65_536,
    }
}

fn open(stream: u32) -> Vec<u8> {
    frame(OPEN, stream, &opening(1, 0, b"", b""))
}

/// Reads one message of a greeting, and leaves what follows it in `buffer`.
async fn message(pipe: &mut DuplexStream, buffer: &mut BytesMut) -> bytes::Bytes {
    loop {
        if let Some(message) = take_message(buffer).unwrap() {
            return message;
        }
        let read = within(pipe.read_buf(buffer)).await.unwrap();
        assert!(read > 0, "closed within the greeting");
    }
}

/// Reads frames until the other half has opened its first stream.
async fn other_opened(pipe: &mut DuplexStream, mut buffer: BytesMut) {
    loop {
        // An OPEN of a call is the one frame of this header.
        let wanted = header(OPEN, 0, 8);
        if buffer.windows(4).any(|window| window == &wanted[..4]) {
            return;
        }
        assert!(within(pipe.read_buf(&mut buffer)).await.unwrap() > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn each_rule_that_a_client_breaks_ends_its_link_alone_by_name() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut world = World::new();
    let mut other = world.pair().await;
    let list = breaches(1, 2, world.server.data_max);
    for (wire, rule) in &list {
        let mut pipe = world.network.dial();
        pipe.write_all(&hello().encode()).await.unwrap();
        let mut buffer = BytesMut::new();
        message(&mut pipe, &mut buffer).await;
        let mut new = world.new_link().await;
        let stream = new.link.open_call().unwrap();
        other_opened(&mut pipe, buffer).await;
        pipe.write_all(&open(1)).await.unwrap();
        let incoming = next(&mut new.incoming).await;
        breach(pipe, &new.link, &log, wire, rule).await;
        drop((stream, incoming));
    }
    is_unharmed(&mut other).await;
    drop(other);
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_breach_on_one_lane_ends_the_link() {
    let mut world = World::new();
    let mut other = world.pair().await;
    let mut main = world.network.dial();
    main.write_all(&hello().encode()).await.unwrap();
    let answer = message(&mut main, &mut BytesMut::new()).await;
    let Answer::Welcome(welcome) = Answer::decode(answer).unwrap() else {
        panic!("not welcome");
    };
    let new = world.new_link().await;
    let mut further = world.network.dial();
    let hello = Hello {
        link: welcome.link,
        lane: 1,
        ..hello()
    };
    further.write_all(&hello.encode()).await.unwrap();
    message(&mut further, &mut BytesMut::new()).await;
    further.write_all(&frame(99, 1, b"")).await.unwrap();
    let reason = within(new.link.closed()).await;
    assert!(
        reason.to_string().contains("unknown frame type 99"),
        "{reason}"
    );
    for mut pipe in [main, further] {
        let mut said = Vec::new();
        within(pipe.read_to_end(&mut said)).await.unwrap();
        let mut farewell = BytesMut::new();
        Control::GoAway {
            code: CloseCode::Protocol,
            text: "unknown frame type 99".to_owned(),
        }
        .encode(&mut farewell);
        assert!(said.ends_with(&farewell), "{said:?}");
    }
    is_unharmed(&mut other).await;
    drop((new, other));
    world.finish().await;
}

/// Gives its one carrier.
struct Once(Mutex<Option<DuplexStream>>);

impl Connect for Once {
    fn connect(&self) -> BoxFuture<'_, Result<Carrier, ConnectError>> {
        let pipe = self.0.lock().unwrap().take();
        Box::pin(async {
            match pipe {
                Some(pipe) => Ok(Carrier::new(pipe, CarrierKind::Memory, "a pipe")),
                None => Err(ConnectError::Configuration("there is only one".to_owned())),
            }
        })
    }
}

/// A client at a hand-written server, and the server's end of its carrier.
async fn connected(world: &World) -> (Connected, DuplexStream, BytesMut) {
    let (near, mut far) = duplex(64 * 1024);
    let hello = ClientHello {
        role: Role::Tunnels,
        session: SessionName::default(),
    };
    let once = Arc::new(Once(Mutex::new(Some(near))));
    let mut buffer = BytesMut::new();
    let serve = async {
        message(&mut far, &mut buffer).await;
        let welcome = Welcome {
            link: LinkId([5; 16]),
            received: 0,
            data_max: 65_536,
            window: 65_536,
            grace: world.server.grace,
            heartbeat: world.server.heartbeat,
            agent: "a hand-written server".to_owned(),
        };
        far.write_all(&Answer::Welcome(welcome).encode())
            .await
            .unwrap();
    };
    let client = connect(once, hello, world.desktop.clone());
    let (client, ()) = within(async { tokio::join!(client, serve) }).await;
    (client.unwrap(), far, buffer)
}

#[tokio::test(start_paused = true)]
async fn each_rule_that_a_server_breaks_ends_its_link_alone_by_name() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut world = World::new();
    let mut other = world.pair().await;
    let list = breaches(2, 1, world.desktop.data_max);
    for (wire, rule) in &list {
        let (mut client, mut pipe, buffer) = connected(&world).await;
        let stream = client.link.open_call().unwrap();
        other_opened(&mut pipe, buffer).await;
        pipe.write_all(&open(2)).await.unwrap();
        let incoming = next(&mut client.incoming).await;
        breach(pipe, &client.link, &log, wire, rule).await;
        drop((stream, incoming));
    }
    is_unharmed(&mut other).await;
    drop(other);
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_that_takes_no_answers_ends_its_link_alone() {
    /// More than the answers that a half keeps for a peer, each of some 60 bytes.
    const OPENS: u32 = 200_000;
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut world = World::with(|config| config.streams_max = 1);
    let mut other = world.pair().await;
    let mut pipe = world.network.dial();
    pipe.write_all(&hello().encode()).await.unwrap();
    let new = world.new_link().await;
    for number in 0..OPENS {
        if pipe.write_all(&open(2 * number + 1)).await.is_err() {
            break;
        }
    }
    let rule = ProtocolError::Flood.to_string();
    let reason = within(new.link.closed()).await;
    assert_eq!(reason, CloseReason::Protocol(rule.clone()));
    assert!(log.take().contains(&rule));
    drop((new, pipe));
    is_unharmed(&mut other).await;
    drop(other);
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn data_beyond_the_credit_ends_that_stream_alone() {
    let mut world = World::with(|config| config.window = 1024);
    let mut pipe = world.network.dial();
    pipe.write_all(&hello().encode()).await.unwrap();
    let mut buffer = BytesMut::new();
    message(&mut pipe, &mut buffer).await;
    let mut new = world.new_link().await;
    let within_it = frame(DATA, 1, &[0; 1024]);
    let wire = [open(1), open(3), within_it, frame(DATA, 1, b"x")].concat();
    pipe.write_all(&wire).await.unwrap();
    let mut greedy = next(&mut new.incoming).await.stream;
    let mut modest = next(&mut new.incoming).await.stream;
    let error = within(greedy.failed()).await;
    assert_eq!(error.code, TunnelErrorCode::FlowControl);
    // What a later version may send and this one need not understand is passed over.
    let later = frame(200, 77, &[0; 300]);
    let wire = [later, frame(DATA, 3, b"fine")].concat();
    pipe.write_all(&wire).await.unwrap();
    within(modest.read_exact(&mut [0; 4])).await.unwrap();
    assert!(new.link.is_up());
    let reset = header(RESET, 1, 0)[4..].to_vec();
    loop {
        // The reset names the stream, behind a type and a length.
        let found = buffer
            .windows(8)
            .any(|frame| frame[0] == RESET && frame[4..] == reset[..]);
        if found {
            break;
        }
        assert!(within(pipe.read_buf(&mut buffer)).await.unwrap() > 0);
    }
    drop((greedy, modest, new, pipe));
    world.finish().await;
}

/// The fields of a greeting as bytes, to be broken one by one.
fn greeting(change: impl FnOnce(&mut Vec<Vec<u8>>)) -> Vec<u8> {
    let text = |text: &[u8]| {
        let length = u16::try_from(text.len()).unwrap().to_be_bytes();
        [&length[..], text].concat()
    };
    let mut fields = vec![
        vec![1],
        b"YNDR".to_vec(),
        1_u16.to_be_bytes().to_vec(),
        vec![0; 16],
        vec![0; 4],
        vec![7; 32],
        vec![0; 8],
        vec![1],
        text(b"default"),
        text(b"a hand-written client"),
        65_536_u32.to_be_bytes().to_vec(),
        65_536_u32.to_be_bytes().to_vec(),
    ];
    change(&mut fields);
    let body = fields.concat();
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&length[..], &body].concat()
}

#[tokio::test(start_paused = true)]
async fn each_field_of_a_greeting_is_checked_and_named() {
    let mut world = World::new();
    let mut other = world.pair().await;
    let long_name = [&65_u16.to_be_bytes()[..], &[b'x'; 65]].concat();
    let long_agent = [&257_u16.to_be_bytes()[..], &[b'x'; 257]].concat();
    let mut cases = vec![
        (0, vec![2], "does not speak the link protocol"),
        (1, b"HTTP".to_vec(), "does not speak the link protocol"),
        (2, vec![0, 0], "version 0"),
        (2, vec![0, 2], "version 2"),
        (7, vec![9], "malformed greeting: role"),
        (8, vec![0, 0], "malformed greeting: session name"),
        (8, b"\0\x03a b".to_vec(), "malformed greeting: session name"),
        (
            8,
            b"\0\x01\xff".to_vec(),
            "malformed greeting: session name",
        ),
        (8, long_name, "malformed greeting: session name"),
        (9, long_agent, "malformed greeting: agent"),
        (9, b"\0\x01\xff".to_vec(), "malformed greeting: agent"),
        (
            10,
            1023_u32.to_be_bytes().to_vec(),
            "malformed greeting: data length",
        ),
        (
            11,
            1023_u32.to_be_bytes().to_vec(),
            "malformed greeting: initial window",
        ),
    ];
    // And each of them missing.
    let names = [
        "type",
        "magic",
        "version",
        "link id",
        "lane",
        "resume secret",
        "received offset",
        "role",
        "session name",
        "agent",
        "data length",
        "initial window",
    ];
    let mut wires: Vec<_> = cases
        .drain(..)
        .map(|(at, value, told)| (greeting(|fields| fields[at] = value), told.to_owned()))
        .collect();
    for (at, name) in names.into_iter().enumerate() {
        let wire = greeting(|fields| {
            fields.truncate(at + 1);
            fields[at].pop();
        });
        wires.push((wire, format!("malformed greeting: {name}")));
    }
    wires.push((vec![0xff; 64], "greeting of 65535 bytes".to_owned()));
    for (wire, told) in wires {
        let mut pipe = world.network.dial();
        pipe.write_all(&wire).await.unwrap();
        let answer = message(&mut pipe, &mut BytesMut::new()).await;
        let Answer::Refused(refusal) = Answer::decode(answer).unwrap() else {
            panic!("{told}: welcome");
        };
        assert!(refusal.text.contains(&told), "{told:?}: {refusal}");
        let error = world.accepted().await.unwrap_err().to_string();
        assert!(error.contains(&told), "{told:?}: {error}");
    }
    is_unharmed(&mut other).await;
    drop(other);
    world.finish().await;
}
