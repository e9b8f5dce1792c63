//! The demo's own small site: a page with a form, and an event stream that shows that bytes arrive as
//! they are sent.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

use crate::process::pause;

/// A browser that sends nothing for this long is not waited for.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// Events of one stream before the page asks again.
const EVENTS: usize = 1_200;

const PAGE: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Yonder demo</title>
<style>
  body { font: 18px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; color: #1c2733 }
  h1 { font-size: 2rem } input, button { font: inherit; padding: .3rem .6rem }
  output { display: block; margin-top: 1rem; font-weight: 600; color: #0b6b50 }
</style>
<h1>This page lives on the server</h1>
<p>Its clock arrives as an event stream through the tunnel: <b id="clock">…</b></p>
<form id="form">
  <label>Your name <input id="name" autocomplete="off"></label>
  <button>Greet</button>
</form>
<output id="greeting"></output>
<script>
  new EventSource("/clock").onmessage = event => { clock.textContent = event.data }
  form.onsubmit = event => {
    event.preventDefault()
    greeting.textContent = "Hello " + document.getElementById("name").value + ", this was typed on the desk."
  }
</script>
</html>
"#;

/// Serves the site on a loopback port until the program ends.
pub(crate) fn start() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .context("could not open a port for the demo site")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A browser that goes away in the middle of an answer is nothing to report.
            std::thread::spawn(move || drop(answer(&stream)));
        }
    });
    Ok(address)
}

fn answer(mut stream: &TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(REQUEST_LIMIT))?;
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let head = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nConnection: close\r\n";
    if request.starts_with("GET /clock ") {
        write!(stream, "{head}Content-Type: text/event-stream\r\n\r\n")?;
        for _ in 0..EVENTS {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            write!(
                stream,
                "data: {}.{:03}\n\n",
                now.as_secs() % 86_400,
                now.subsec_millis()
            )?;
            pause();
        }
        Ok(())
    } else if request.starts_with("GET / ") {
        write!(
            stream,
            "{head}Content-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\r\n{PAGE}",
            PAGE.len()
        )
    } else {
        write!(
            stream,
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
    }
}
