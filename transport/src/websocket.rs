//! The WebSocket carrier (RFC 6455): a plain byte stream inside binary messages.
//!
//! * `frame`: frame headers as bytes.
//! * `decoder`: received frames, unwrapped in place.
//! * `stream`: [`WebSocketStream`], the two joined over a connection.
//! * `proof`: the echo of a large message, before a path is trusted.
//! * `handshake`: the upgrade, as the server answers it and as the client asks for and checks it.
//!
//! Message borders mean nothing here. Each write becomes one message, so that a batch costs one header; any
//! fragmentation is accepted, since intermediaries may choose their own. No extension is ever negotiated. HTTP itself
//! is hyper's business, in the server half and in `http_client`.

mod decoder;
mod frame;
mod handshake;
mod proof;
mod stream;

pub use decoder::WebSocketError;
pub use frame::MESSAGE_BYTES_MAX;
pub use handshake::{SUBPROTOCOL, UpgradeError, accept_key, upgrade_response};
pub use proof::echo_asked;
pub use stream::{Masking, WebSocketStream};

pub(crate) use handshake::{ClientKey, upgrade_request};
pub(crate) use proof::{PROOF_BYTES, PROOF_HEADER};

/// Entry point for fuzzing the decoder: any bytes, in any pieces, must neither panic nor grow.
///
/// The first byte chooses the role and how the rest is cut into pieces.
#[doc(hidden)]
pub fn fuzz_decode(input: &[u8]) {
    let Some((&choice, rest)) = input.split_first() else {
        return;
    };
    let mut decoder = decoder::Decoder::new(choice & 1 == 1);
    let mut rest = rest.to_vec();
    for piece in rest.chunks_mut(usize::from(choice >> 1) + 1) {
        let length = piece.len();
        let decoded = decoder.decode(piece);
        assert!(decoded.payload <= length, "more payload than bytes");
        while decoder.take_reply().is_some() {}
    }
}
