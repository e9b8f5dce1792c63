//! Entries for the fuzz targets and the property tests: each takes any bytes and panics when the
//! parsers break a promise.

use crate::body::{Body, Chunked, Framing};
use crate::head::request::{Kind, parse};
use crate::head::response;
use crate::head::{HeadScan, content_length};

/// A request head is refused or understood, and what the target would get has one framing, one host and
/// nothing that was meant for the proxy.
pub fn fuzz_request_head(bytes: &[u8]) {
    let mut scan = HeadScan::default();
    let whole = scan.advance(bytes);
    let mut scan = HeadScan::default();
    let mut bit_by_bit = Ok(None);
    for end in 0..=bytes.len() {
        bit_by_bit = scan.advance(&bytes[..end]);
        if bit_by_bit != Ok(None) {
            break;
        }
    }
    assert_eq!(
        whole, bit_by_bit,
        "the verdict depends on how the bytes come"
    );
    let Ok(Some(length)) = whole else { return };

    let mut forwarded = Vec::new();
    let Ok(parsed) = parse(&bytes[..length], &mut forwarded) else {
        return;
    };
    if parsed.request.kind == Kind::Tunnel {
        assert!(forwarded.is_empty());
        return;
    }
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut again = httparse::Request::new(&mut fields);
    assert_eq!(
        again.parse(&forwarded),
        Ok(httparse::Status::Complete(forwarded.len())),
        "the forwarded head is not one head"
    );
    let path = again.path.expect("a complete head has a target");
    assert!(path.starts_with('/') || path == "*");
    let values = |name: &str| {
        again
            .headers
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
            .collect::<Vec<_>>()
    };
    assert_eq!(values("host").len(), 1);
    for name in [
        "proxy-authorization",
        "proxy-connection",
        "keep-alive",
        "te",
    ] {
        assert!(values(name).is_empty(), "{name} was forwarded");
    }
    let lengths = values("content-length");
    let codings = values("transfer-encoding");
    match parsed.request.framing {
        Framing::Empty => assert!(lengths.is_empty() && codings.is_empty()),
        Framing::Length(length) => {
            assert!(codings.is_empty());
            assert_eq!(lengths.len(), 1);
            assert_eq!(content_length(lengths[0]), Some(length));
        }
        Framing::Chunked => {
            assert!(lengths.is_empty());
            assert_eq!(codings, [b"chunked"]);
        }
        Framing::UntilClose => panic!("a request has no such framing"),
    }
}

/// A chunked body gets the same verdict and the same end however its bytes are cut.
pub fn fuzz_chunked(bytes: &[u8]) {
    let mut whole = Body::new(Framing::Chunked);
    let expected = whole.accept(bytes);
    let mut tracker = Chunked::default();
    let mut accepted = 0;
    for byte in bytes {
        match tracker.accept(std::slice::from_ref(byte)) {
            Ok(0) => break,
            Ok(count) => accepted += count,
            Err(error) => {
                assert_eq!(expected, Err(error));
                return;
            }
        }
    }
    assert_eq!(expected, Ok(accepted));
    assert_eq!(whole.is_done(), tracker.is_done());
}

/// A response head is refused or understood, and what the client would get is one head with the framing
/// by which the body is read.
pub fn fuzz_response_head(bytes: &[u8]) {
    for (head_only, upgrade, http_1_0) in [
        (false, false, false),
        (true, false, false),
        (false, true, false),
        (false, false, true),
    ] {
        let asked = response::Asked {
            head_only,
            upgrade,
            http_1_0,
            close: http_1_0,
        };
        let mut forwarded = Vec::new();
        let Ok(Some(parsed)) = response::parse(bytes, asked, &mut forwarded) else {
            assert!(forwarded.is_empty(), "a head that is not taken is not sent");
            continue;
        };
        assert!(parsed.length <= bytes.len());
        let mut fields = [httparse::EMPTY_HEADER; 512];
        let mut again = httparse::Response::new(&mut fields);
        assert_eq!(
            again.parse(&forwarded),
            Ok(httparse::Status::Complete(forwarded.len())),
            "the forwarded head is not one head"
        );
        let values = |name: &str| {
            again
                .headers
                .iter()
                .filter(|field| field.name.eq_ignore_ascii_case(name))
                .map(|field| field.value)
                .collect::<Vec<_>>()
        };
        let lengths = values("content-length");
        let codings = values("transfer-encoding");
        assert!(lengths.len() + codings.len() <= 1, "two framings");
        match parsed.framing {
            Framing::Empty => assert!(codings.is_empty()),
            Framing::Length(length) => assert_eq!(content_length(lengths[0]), Some(length)),
            Framing::Chunked => assert_eq!(codings.is_empty(), http_1_0),
            Framing::UntilClose => {
                assert!(lengths.is_empty() && codings.is_empty() && parsed.close);
            }
        }
    }
}
