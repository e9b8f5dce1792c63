//! What the lane makes of the bytes that arrive.

use std::time::Duration;

use bytes::Bytes;

use super::{CONTROL_BYTES_MAX, EARLY_WINDOW, Event, Lane};
use crate::link::frame::{Control, Item, Open, ProtocolError};
use crate::link::schedule::Turn;
use crate::link::stream::{ReceiveSide, SendSide, Stream};
use crate::target::{TunnelError, TunnelErrorCode};

/// Received bytes after which the peer is told, so that it can forget them.
const ACK_BYTES: u64 = 256 * 1024;

/// The same by time, while anything arrives: the sender learns that a slow line still moves.
const ACK_INTERVAL: Duration = Duration::from_secs(1);

/// Payloads up to this size are copied when they arrive: a slice would keep the whole read buffer
/// (256 KiB) alive for as long as its consumer does not take it.
const COPY_BYTES: usize = 4 * 1024;

impl Lane {
    /// Takes bytes of the carrier, in any portions. After an error the link is dead: send
    /// [`Lane::go_away`] with the error's text, and nothing else.
    pub fn receive(&mut self, mut bytes: Bytes, now: Duration) -> Result<(), ProtocolError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.pulse.on_bytes(now);
        self.received += bytes.len() as u64;
        while let Some(item) = self.decoder.next(&mut bytes)? {
            match item {
                Item::Control(frame) => self.on_control(frame, now)?,
                Item::DataHeader { stream, length } => self.on_data_header(stream, length, now)?,
                Item::Data { stream, bytes } => self.on_data(stream, bytes),
            }
        }
        self.ack_due |= self.received - self.acknowledged >= ACK_BYTES
            || (self.data_unacknowledged
                && now.saturating_sub(self.acknowledged_at) >= ACK_INTERVAL);
        if self.control.len() > CONTROL_BYTES_MAX {
            return Err(ProtocolError::Flood);
        }
        Ok(())
    }

    fn on_data_header(&mut self, id: u32, length: u32, now: Duration) -> Result<(), ProtocolError> {
        self.payload_wanted = false;
        let Some(stream) = self.streams.get_mut(&id) else {
            return self.must_be_gone(id, ProtocolError::unopened_data(id));
        };
        if stream.receive.ended {
            return Err(ProtocolError::AfterEnd(id));
        }
        self.data_unacknowledged = true;
        if stream.receive.announce(length, now, &self.config.budget) {
            self.payload_wanted = true;
        } else {
            self.fail(
                id,
                TunnelErrorCode::FlowControl,
                "more data than was granted",
            );
        }
        Ok(())
    }

    fn on_data(&mut self, id: u32, bytes: Bytes) {
        // The stream may have been reset while its payload was under way.
        if let Some(stream) = self.streams.get_mut(&id)
            && self.payload_wanted
        {
            stream.receive.buffered += bytes.len();
            self.buffered += bytes.len();
            let bytes = if bytes.len() <= COPY_BYTES {
                Bytes::copy_from_slice(&bytes)
            } else {
                bytes
            };
            self.events.push_back(Event::Data { stream: id, bytes });
        }
    }

    fn on_control(&mut self, frame: Control, now: Duration) -> Result<(), ProtocolError> {
        match frame {
            Control::Open {
                stream,
                credit,
                open,
            } => self.on_open(stream, credit, open, now),
            Control::Opened {
                stream: id,
                credit,
                text,
            } => {
                if !self.is_own(id) {
                    return Err(ProtocolError::Unasked(id));
                }
                let Some(stream) = self.streams.get_mut(&id) else {
                    return self.must_be_gone(id, ProtocolError::Unasked(id));
                };
                if stream.accepted {
                    return Err(ProtocolError::Unasked(id));
                }
                stream.accepted = true;
                self.events.push_back(Event::Opened { stream: id, text });
                self.on_credit(id, credit)
            }
            Control::Credit { stream, bytes } => self.on_credit(stream, bytes),
            Control::End { stream: id } => {
                let Some(stream) = self.streams.get_mut(&id) else {
                    return self.must_be_gone(id, ProtocolError::unopened_data(id));
                };
                if stream.receive.ended {
                    return Err(ProtocolError::AfterEnd(id));
                }
                stream.receive.ended = true;
                self.events.push_back(Event::End { stream: id });
                self.finish_if_over(id);
                Ok(())
            }
            Control::Reset { stream: id, error } => {
                if self.remove(id).is_none() {
                    return self.must_be_gone(id, ProtocolError::unopened_data(id));
                }
                self.events.push_back(Event::Reset { stream: id, error });
                Ok(())
            }
            Control::Ping(nonce) => {
                self.pong = Some(nonce);
                self.ack_due |= self.received > self.acknowledged;
                Ok(())
            }
            Control::Pong(nonce) => {
                self.pulse.on_pong(nonce, now);
                Ok(())
            }
            Control::GoAway { code, text } => {
                self.events.push_back(Event::GoAway { code, text });
                Ok(())
            }
            // A lower one than before is left over from before the last resume.
            Control::Ack(offset) if offset <= self.replay.base() => Ok(()),
            Control::Ack(offset) if self.replay.acknowledge(offset) => Ok(()),
            Control::Ack(offset) => Err(ProtocolError::Acknowledgement(offset)),
        }
    }

    fn on_open(
        &mut self,
        id: u32,
        credit: u32,
        open: Open,
        now: Duration,
    ) -> Result<(), ProtocolError> {
        if self.is_own(id) || id <= self.peer_highest {
            return Err(ProtocolError::StreamId(id));
        }
        self.peer_highest = id;
        if self.peer_streams >= self.config.streams_max {
            Control::Reset {
                stream: id,
                error: TunnelError::new(
                    TunnelErrorCode::Overloaded,
                    "the link holds as many streams as it may",
                ),
            }
            .encode(&mut self.control);
            return Ok(());
        }
        self.peer_streams += 1;
        let budget = &self.config.budget;
        let announced = self.config.window.min(EARLY_WINDOW);
        let window = budget.first_window(self.config.window).max(announced);
        let mut receive = ReceiveSide::new(window, announced, now, budget);
        if window > announced {
            receive.grant_queued = true;
            self.grants.push_back(id);
        }
        self.streams.insert(
            id,
            Stream {
                send: SendSide::new(credit),
                receive,
                turn: Turn::Idle,
                accepted: false,
            },
        );
        self.events.push_back(Event::Incoming {
            stream: id,
            credit,
            open,
        });
        Ok(())
    }

    fn on_credit(&mut self, id: u32, bytes: u32) -> Result<(), ProtocolError> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return self.must_be_gone(id, ProtocolError::unopened_data(id));
        };
        stream.send.credit = stream
            .send
            .credit
            .checked_add(bytes)
            .ok_or(ProtocolError::CreditOverflow(id))?;
        if bytes > 0 {
            self.events.push_back(Event::Writable { stream: id, bytes });
        }
        Ok(())
    }

    /// A frame for a stream that is not open is the tail of one that was reset, or it is `error`.
    fn must_be_gone(&self, id: u32, error: ProtocolError) -> Result<(), ProtocolError> {
        let opened = if self.is_own(id) {
            self.next_id.is_none_or(|next| id < next)
        } else {
            id <= self.peer_highest
        };
        if opened { Ok(()) } else { Err(error) }
    }
}
