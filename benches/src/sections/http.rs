//! Small requests through the desktop half's HTTP proxy, which parses each of them.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::Setting;
use crate::halves::{Carrier, ServerHalf, Target};
use crate::process::{cpu_seconds, pause};
use crate::report::{Notes, Report, Unit};
use crate::target::BODY_BYTES;
use crate::way::IO_LIMIT;

pub(crate) const NAME: &str = "http";

/// Connections kept alive, each with one request at a time.
const CONNECTIONS: usize = 32;

/// Longest answer head; ours are far shorter.
const HEAD_BYTES_MAX: usize = 4096;

pub(crate) fn run(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let target = Target::start(&setting.place)?;
    let http = target.ports.http;
    let request = format!("GET / HTTP/1.1\r\nhost: {http}\r\n\r\n");
    let (direct, _) = measure(setting, http, &request, &[])?;
    Notes::new(report, NAME, "direct").note(MEASURE, direct, Unit::PerSecond);
    for (name, carrier) in [("plain", Carrier::Plain), ("tls", Carrier::Tls)] {
        let server = ServerHalf::start(&setting.place, carrier)?;
        let (desktop, proxy, credential) = server.proxy(&setting.place)?;
        let request = format!(
            "GET http://{http}/ HTTP/1.1\r\nhost: {http}\r\nproxy-authorization: Basic {}\r\n\r\n",
            BASE64_STANDARD.encode(credential)
        );
        let (rate, cpu) = measure(setting, proxy, &request, &[desktop.id(), server.id()])?;
        let mut notes = Notes::new(report, NAME, name);
        notes.note(MEASURE, rate, Unit::PerSecond);
        notes.note("of direct", rate / direct, Unit::Ratio);
        notes.note("CPU a request, both", cpu / rate, Unit::Seconds);
    }
    Ok(())
}

/// The measure's name.
const MEASURE: &str = "GET of 1 KiB, 32 connections, a second";

/// Requests a second, and CPU seconds of `processes` a second.
fn measure(
    setting: &Setting,
    entry: SocketAddr,
    request: &str,
    processes: &[u32],
) -> anyhow::Result<(f64, f64)> {
    let answered = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (answered, stop) = (Arc::clone(&answered), Arc::clone(&stop));
            let request = request.as_bytes().to_vec();
            std::thread::spawn(move || keep_asking(entry, &request, &answered, &stop))
        })
        .collect();
    pause(setting.scale.warm());
    let cpu = || {
        let each = processes.iter().map(|&id| cpu_seconds(id));
        each.sum::<anyhow::Result<f64>>()
    };
    let (start, before) = (cpu()?, answered.load(Ordering::Relaxed));
    pause(setting.scale.length);
    let (end, after) = (cpu()?, answered.load(Ordering::Relaxed));
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread
            .join()
            .map_err(|_| anyhow!("a load panicked"))?
            .context("a request failed")?;
    }
    let seconds = setting.scale.length.as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52 requests")]
    let rate = (after - before) as f64 / seconds;
    Ok((rate, (end - start) / seconds))
}

fn keep_asking(
    entry: SocketAddr,
    request: &[u8],
    answered: &AtomicU64,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut socket = TcpStream::connect_timeout(&entry, IO_LIMIT)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(IO_LIMIT))?;
    let mut buffer = Vec::with_capacity(HEAD_BYTES_MAX + BODY_BYTES);
    while !stop.load(Ordering::Relaxed) {
        socket.write_all(request)?;
        read_answer(&mut socket, &mut buffer)?;
        answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Reads one answer with a body of [`BODY_BYTES`].
fn read_answer(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    loop {
        let mut piece = [0; HEAD_BYTES_MAX];
        let count = socket.read(&mut piece)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.extend_from_slice(&piece[..count]);
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        if !buffer.starts_with(b"HTTP/1.1 200") {
            let head = String::from_utf8_lossy(&buffer[..end]);
            return Err(io::Error::other(format!("the proxy answered: {head}")));
        }
        if buffer.len() >= end + 4 + BODY_BYTES {
            return Ok(());
        }
    }
}
