//! What is taken and what is refused, head by head.

use proptest::prelude::*;

use super::*;

fn forwarded(head: &str) -> Result<String, BadRequest> {
    let mut out = Vec::new();
    parse(head.as_bytes(), &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

fn refused(lines: &str) -> BadRequest {
    let head = format!("GET http://h/ HTTP/1.1\r\n{lines}\r\n");
    forwarded(&head).unwrap_err()
}

#[test]
fn the_target_gets_origin_form_without_the_fields_of_this_hop() {
    let head = "GET http://localhost:8000/a?b HTTP/1.1\r\n\
        Host: elsewhere\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic x\r\n\
        Connection: X-Hop, keep-alive\r\nX-Hop: 1\r\nTE: trailers\r\nKeep-Alive: timeout=5\r\n\
        Trailer: x-sum\r\nUpgrade: websocket\r\nAccept: */*\r\n\r\n";
    assert_eq!(
        forwarded(head).unwrap(),
        "GET /a?b HTTP/1.1\r\nHost: localhost:8000\r\nTrailer: x-sum\r\nAccept: */*\r\n\r\n"
    );
}

#[test]
fn targets_without_a_path_get_one() {
    let line = |request: &str| {
        let text = forwarded(&format!("{request} HTTP/1.1\r\n\r\n")).unwrap();
        text.lines().next().unwrap().to_owned()
    };
    assert_eq!(line("GET http://h"), "GET / HTTP/1.1");
    assert_eq!(line("GET http://h?q"), "GET /?q HTTP/1.1");
    assert_eq!(line("OPTIONS http://h"), "OPTIONS * HTTP/1.1");
    assert_eq!(line("OPTIONS http://h/"), "OPTIONS / HTTP/1.1");
}

#[test]
fn an_upgrade_keeps_its_fields() {
    let head =
        "GET ws://h/ HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let text = forwarded(head).unwrap();
    assert!(text.ends_with("Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"));
    let h2c = head.replace("ws://", "http://").replace("websocket", "h2c");
    assert!(!forwarded(&h2c).unwrap().contains("Upgrade"));
}

#[test]
fn two_framings_are_never_taken() {
    for (lines, error) in [
        (
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            BadRequest::RepeatedLength,
        ),
        (
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            BadRequest::RepeatedLength,
        ),
        ("Content-Length: 1, 1\r\n", BadRequest::Length),
        ("Content-Length: +1\r\n", BadRequest::Length),
        ("Content-Length:\r\n", BadRequest::Length),
        (
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            BadRequest::TwoFramings,
        ),
        (
            "Transfer-Encoding: gzip, chunked\r\n",
            BadRequest::TransferEncoding,
        ),
        (
            "Transfer-Encoding: identity\r\n",
            BadRequest::TransferEncoding,
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            BadRequest::TransferEncoding,
        ),
        ("Host: a\r\nHost: a\r\n", BadRequest::RepeatedHost),
        ("Content-Length : 1\r\n", BadRequest::Field),
        (" Content-Length: 1\r\n", BadRequest::Field),
        ("A: b\r\n c\r\n", BadRequest::Field),
        ("A: b\0c\r\n", BadRequest::Field),
        ("A\r\n", BadRequest::Field),
    ] {
        assert_eq!(refused(lines), error, "{lines:?}");
    }
    let old = "POST http://h/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(forwarded(old), Err(BadRequest::TransferEncoding));
    let many = "A: b\r\n".repeat(REQUEST_FIELDS + 1);
    assert_eq!(refused(&many), BadRequest::TooManyFields);
}

#[test]
fn request_lines_are_exact() {
    for (line, error) in [
        ("GET  http://h/ HTTP/1.1", BadRequest::RequestLine),
        ("GET http://h/ HTTP/2.0", BadRequest::Version),
        ("GET http://h/ x HTTP/1.1", BadRequest::Version),
        ("GET / HTTP/1.1", BadRequest::OriginForm),
        ("CONNECT http://h/ HTTP/1.1", BadRequest::Port),
        ("CONNECT u@h:1 HTTP/1.1", BadRequest::UserInfo),
        ("CONNECT /h HTTP/1.1", BadRequest::Host),
    ] {
        assert_eq!(forwarded(&format!("{line}\r\n\r\n")), Err(error), "{line}");
    }
}

#[test]
fn connect_takes_no_body() {
    let ask = |lines: &str| forwarded(&format!("CONNECT h:1 HTTP/1.1\r\n{lines}\r\n"));
    assert_eq!(ask("").as_deref(), Ok(""));
    assert_eq!(ask("Content-Length: 0\r\n").as_deref(), Ok(""));
    assert_eq!(ask("Content-Length: 1\r\n"), Err(BadRequest::ConnectBody));
    assert_eq!(
        ask("Transfer-Encoding: chunked\r\n"),
        Err(BadRequest::ConnectBody)
    );
}

#[test]
fn facts_are_read() {
    let mut out = Vec::new();
    let head = b"HEAD http://PRIME.invalid./ HTTP/1.1\r\nAccept: image/png, text/html;q=0.9\r\n\
        Proxy-Authorization: Basic abc\r\nAuthorization: NTLM abc\r\nConnection: close\r\n\r\n";
    let parsed = parse(head, &mut out).unwrap();
    assert_eq!(parsed.credential, Some(b"Basic abc".as_slice()));
    let request = parsed.request;
    assert!(request.is_priming() && request.wants_html && request.bound);
    assert!(request.close && request.head_only && request.repeatable);
}

proptest! {
    #[test]
    fn any_bytes_are_judged_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::fuzzing::fuzz_request_head(&bytes);
    }

    #[test]
    fn heads_near_the_grammar_are_judged_without_panic(
        method in "(GET|POST|CONNECT|OPTIONS|[A-Za-z]{0,5})",
        url in "(http://[a-z\\[\\]:@.%0-9]{0,12}[/?#]?[ -~]{0,8}|[a-z:0-9]{0,9})",
        fields in prop::collection::vec(
            ("(Content-Length|Transfer-Encoding|Host|Connection|Upgrade|TE|[!-~]{0,5}) ?", "(chunked|[0-9,+ ]{0,4}|[ -~\t]{0,9})", "\r\n|\n|\r|\r\n "),
            0..6,
        ),
    ) {
        use std::fmt::Write as _;
        let mut head = format!("{method} {url} HTTP/1.1\r\n");
        for (name, value, end) in fields {
            let _ = write!(head, "{name}:{value}{end}");
        }
        head.push_str("\r\n");
        crate::fuzzing::fuzz_request_head(head.as_bytes());
    }
}
