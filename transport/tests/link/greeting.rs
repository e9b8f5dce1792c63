//! Clients of all sorts at the acceptor: strangers, liars, and those that say nothing.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use yonder_protocol::TunnelErrorCode;
use yonder_protocol::link::frame::Control;
use yonder_protocol::link::hello::{Answer, Hello, Refusal, RefusalCode, Welcome, take_message};
use yonder_protocol::link::{CloseCode, LinkId, Open, ResumeSecret, Role, SessionName};
use yonder_transport::acceptor::{AcceptError, Accepted};
use yonder_transport::link::CloseReason;

use crate::world::{World, next, within};

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

async fn answer(pipe: &mut DuplexStream, buffer: &mut BytesMut) -> Answer {
    loop {
        if let Some(message) = take_message(buffer).unwrap() {
            return Answer::decode(message).unwrap();
        }
        assert!(
            within(pipe.read_buf(buffer)).await.unwrap() > 0,
            "closed without an answer"
        );
    }
}

async fn greet(pipe: &mut DuplexStream, hello: &Hello) -> Answer {
    pipe.write_all(&hello.encode()).await.unwrap();
    answer(pipe, &mut BytesMut::new()).await
}

async fn welcomed(pipe: &mut DuplexStream, hello: &Hello) -> Welcome {
    match greet(pipe, hello).await {
        Answer::Welcome(welcome) => welcome,
        Answer::Refused(refusal) => panic!("{refusal}"),
    }
}

async fn refused(pipe: &mut DuplexStream, hello: &Hello) -> RefusalCode {
    match greet(pipe, hello).await {
        Answer::Refused(refusal) => refusal.code,
        Answer::Welcome(welcome) => panic!("{welcome:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_links_wrong_secrets_and_other_lanes_are_refused() {
    let mut world = World::new();
    let mut pipe = world.network.dial();
    let welcome = welcomed(&mut pipe, &hello()).await;
    let new = world.new_link().await;
    assert_eq!((new.link.id(), new.role), (welcome.link, Role::Tunnels));

    let unknown = Hello {
        link: LinkId([9; 16]),
        ..hello()
    };
    let wrong = Hello {
        link: welcome.link,
        secret: ResumeSecret::new([8; 32]),
        ..hello()
    };
    let lane = Hello { lane: 1, ..hello() };
    for (hello, code) in [
        (unknown, RefusalCode::UnknownLink),
        (wrong, RefusalCode::BadSecret),
        (lane, RefusalCode::Malformed),
    ] {
        assert_eq!(refused(&mut world.network.dial(), &hello).await, code);
        let error = world.accepted().await.unwrap_err();
        assert!(
            matches!(error, AcceptError::Refused(Refusal { code: told, .. }) if told == code),
            "{error}"
        );
    }
    // The link that they meant is unharmed.
    assert!(new.link.is_up());
    drop((new, pipe));
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn strangers_and_other_versions_are_told_so() {
    let mut world = World::new();
    let mut pipe = world.network.dial();
    pipe.write_all(b"\x00\x10GET / HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    assert!(matches!(
        answer(&mut pipe, &mut BytesMut::new()).await,
        Answer::Refused(Refusal {
            code: RefusalCode::Malformed,
            ..
        })
    ));
    assert!(world.accepted().await.is_err());

    let mut other = BytesMut::from(hello().encode());
    other[8] = 99;
    let mut pipe = world.network.dial();
    pipe.write_all(&other).await.unwrap();
    let Answer::Refused(refusal) = answer(&mut pipe, &mut BytesMut::new()).await else {
        panic!("another version is welcome");
    };
    assert_eq!(refusal.code, RefusalCode::Version);
    assert!(refusal.text.contains("same release"), "{refusal}");
    assert!(world.accepted().await.is_err());
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn who_stops_within_the_greeting_holds_nothing() {
    let mut world = World::new();
    let encoded = hello().encode();
    // Gone in the middle.
    let mut pipe = world.network.dial();
    pipe.write_all(&encoded[..20]).await.unwrap();
    drop(pipe);
    assert!(world.accepted().await.is_err());
    // Silent in the middle.
    let mut pipe = world.network.dial();
    pipe.write_all(&encoded[..20]).await.unwrap();
    let start = tokio::time::Instant::now();
    let error = world.accepted().await.unwrap_err();
    assert!(
        error.to_string().contains("did not greet within 10 s"),
        "{error}"
    );
    assert!(start.elapsed() < Duration::from_secs(11));
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_broken_rule_ends_that_link_alone_with_its_name() {
    let mut world = World::new();
    let mut other = world.pair().await;
    let mut pipe = world.network.dial();
    welcomed(&mut pipe, &hello()).await;
    let mut new = world.new_link().await;

    let mut wire = BytesMut::new();
    Control::Open {
        stream: 1,
        credit: 1000,
        open: Open::call(),
    }
    .encode(&mut wire);
    wire.extend_from_slice(&[99, 0, 0, 0, 0, 0, 0, 1]);
    pipe.write_all(&wire).await.unwrap();
    let reason = within(new.link.closed()).await;
    assert_eq!(
        reason,
        CloseReason::Protocol("unknown frame type 99".to_owned())
    );
    // The stream of before the breach is handed out, and over.
    let mut stream = next(&mut new.incoming).await.stream;
    assert_eq!(
        within(stream.failed()).await.code,
        TunnelErrorCode::LinkDown
    );
    assert!(new.incoming.next().await.is_none());
    drop(stream);

    // The peer is told by its name.
    let mut rest = Vec::new();
    within(pipe.read_to_end(&mut rest)).await.unwrap();
    let mut farewell = BytesMut::new();
    Control::GoAway {
        code: CloseCode::Protocol,
        text: "unknown frame type 99".to_owned(),
    }
    .encode(&mut farewell);
    assert!(rest.ends_with(&farewell), "{rest:?}");

    let mut stream = other.client.open_call().unwrap();
    stream.write_all(b"fine").await.unwrap();
    let mut server = next(&mut other.server_incoming).await.stream;
    within(server.read_exact(&mut [0; 4])).await.unwrap();
    drop((stream, server, other, new));
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn the_newest_carrier_of_a_link_wins_and_a_stale_one_harms_nothing() {
    let mut world = World::new();
    let mut first = world.network.dial();
    let welcome = welcomed(&mut first, &hello()).await;
    let mut new = world.new_link().await;

    // A second one while the first is still up: the client noticed a death that the server did not.
    let mut second = world.network.dial();
    let back = Hello {
        link: welcome.link,
        ..hello()
    };
    let resumed = welcomed(&mut second, &back).await;
    assert_eq!((resumed.link, resumed.received), (welcome.link, 0));
    assert!(matches!(world.accepted().await, Ok(Accepted::Resumed(id)) if id == welcome.link));
    let mut rest = Vec::new();
    within(first.read_to_end(&mut rest)).await.unwrap();

    // The client acknowledges what it got, so that its early greeting is out of date.
    let mut wire = BytesMut::new();
    let mut got = BytesMut::new();
    within(second.read_buf(&mut got)).await.unwrap();
    Control::Ack(got.len() as u64).encode(&mut wire);
    Control::Open {
        stream: 1,
        credit: 0,
        open: Open::call(),
    }
    .encode(&mut wire);
    second.write_all(&wire).await.unwrap();
    let incoming = next(&mut new.incoming).await;

    let mut stale = world.network.dial();
    stale.write_all(&back.encode()).await.unwrap();
    assert!(matches!(world.accepted().await, Ok(Accepted::Resumed(_))));
    let mut rest = Vec::new();
    within(stale.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.is_empty());
    assert!(new.link.is_up());

    // One that claims bytes which were never sent is refused while no carrier is up.
    drop(second);
    let mut liar = world.network.dial();
    let claim = Hello {
        received: 1 << 40,
        ..back.clone()
    };
    while new.link.is_up() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(refused(&mut liar, &claim).await, RefusalCode::UnknownLink);
    let honest = Hello {
        received: got.len() as u64,
        ..back
    };
    let resumed = welcomed(&mut world.network.dial(), &honest).await;
    assert_eq!(resumed.received, wire.len() as u64);
    drop((incoming, new));
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn credit_granted_in_the_same_flight_as_the_open_counts_once() {
    let mut world = World::new();
    let mut pipe = world.network.dial();
    welcomed(&mut pipe, &hello()).await;
    let mut new = world.new_link().await;
    let mut wire = BytesMut::new();
    Control::Open {
        stream: 1,
        credit: 10,
        open: Open::call(),
    }
    .encode(&mut wire);
    Control::Credit {
        stream: 1,
        bytes: 5,
    }
    .encode(&mut wire);
    pipe.write_all(&wire).await.unwrap();
    let mut stream = next(&mut new.incoming).await.stream;
    let mut written = 0;
    while let Ok(taken) =
        tokio::time::timeout(Duration::from_millis(10), stream.write(&[0; 64])).await
    {
        written += taken.unwrap();
    }
    assert_eq!(written, 15);
    drop((stream, new, pipe));
    world.finish().await;
}
