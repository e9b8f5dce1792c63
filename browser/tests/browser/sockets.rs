//! The browser's processes hold no connection but those to the proxy, whatever a page tries.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::time::Duration;

use crate::stage::{Stage, until};

/// A socket as `/proc/net` shows it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Socket {
    table: &'static str,
    local: String,
    remote: String,
}

/// Inodes of the sockets that processes of the group hold.
fn inodes(leader: u32) -> HashSet<String> {
    let mut found = HashSet::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some(at) = stat.rfind(") ") else { continue };
        // After the name: state, parent, group.
        if stat[at + 2..].split(' ').nth(2) != Some(&*leader.to_string()) {
            continue;
        }
        let Ok(descriptors) = fs::read_dir(entry.path().join("fd")) else {
            continue;
        };
        for descriptor in descriptors.flatten() {
            let Ok(link) = fs::read_link(descriptor.path()) else {
                continue;
            };
            let link = link.to_string_lossy().into_owned();
            if let Some(inode) = link.strip_prefix("socket:[") {
                found.insert(inode.trim_end_matches(']').to_owned());
            }
        }
    }
    found
}

fn sockets(leader: u32) -> Vec<Socket> {
    let inodes = inodes(leader);
    let mut sockets = Vec::new();
    for table in ["tcp", "tcp6", "udp", "udp6", "raw", "raw6"] {
        let text = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<_> = line.split_whitespace().collect();
            if let [_, local, remote, ..] = fields[..]
                && fields.get(9).is_some_and(|inode| inodes.contains(*inode))
            {
                sockets.push(Socket {
                    table,
                    local: local.to_owned(),
                    remote: remote.to_owned(),
                });
            }
        }
    }
    sockets
}

#[tokio::test]
async fn only_the_proxy_is_connected() {
    let stage = Stage::new().await;
    let site = &stage.site;
    let tab = &*stage.first();
    site.page(
        "/",
        "<link rel=dns-prefetch href=//prefetch.example><link rel=preconnect href=https://preconnect.example>
         <img src=https://192.0.2.1/i.png><img src=http://127.0.0.1:1234/i.png>
         <iframe src=http://[::1]:1234/></iframe>
         <script>
           const servers = ['stun:192.0.2.2:3478', 'stun:stun.example:3478', 'turn:192.0.2.3:3478?transport=udp',
             'turn:127.0.0.1:3478?transport=tcp'];
           window.candidates = [];
           window.done = (async () => {
             const [one, two] = [0, 1].map(() => new RTCPeerConnection({
               iceServers: servers.map(urls => ({ urls, username: 'u', credential: 'c' })) }));
             for (const [a, b] of [[one, two], [two, one]])
               a.onicecandidate = ({ candidate }) => candidate && (candidates.push(candidate.candidate), b.addIceCandidate(candidate));
             one.createDataChannel('x');
             await one.setLocalDescription();
             await two.setRemoteDescription(one.localDescription);
             await two.setLocalDescription();
             await one.setRemoteDescription(two.localDescription);
             const tries = [
               new WebTransport('https://192.0.2.4:4433/').ready,
               new Promise((_, fail) => new WebSocket('ws://127.0.0.1:1235/').onerror = fail),
               fetch('http://name.local/'), fetch('https://direct.example/')];
             await Promise.allSettled(tries);
             await new Promise(done => setTimeout(done, 3000));
             return 'tried';
           })();
         </script>",
    );
    stage.go(tab, "http://localhost/").await.unwrap();
    let proxy = format!("{:04X}", site.address.port());
    let mut seen = BTreeSet::new();
    let tried = stage.script(tab, "done");
    let watch = async {
        // All the while, not only at the end: connections may be short.
        loop {
            seen.extend(sockets(stage.browser.pid()));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        tried = tried => assert_eq!(tried, "tried"),
        () = watch => {}
    }
    assert!(!seen.is_empty());
    for socket in &seen {
        let to_proxy = socket.table == "tcp" && socket.remote == format!("0100007F:{proxy}");
        // Chromium asks the kernel which address it would use for the world, with datagram sockets that
        // it connects and never sends on. They are no traffic.
        let route_probe = socket.table.starts_with("udp")
            && (socket.remote == "08080808:0035"
                || socket.remote.ends_with("8888:0035")
                || socket.remote.ends_with("88880000:0035"));
        // Bound for answers to questions that are never asked (multicast DNS).
        let silent = socket.table.starts_with("udp") && socket.remote.ends_with(":0000");
        assert!(to_proxy || route_probe || silent, "{socket:?} in {seen:#?}");
    }
    assert_eq!(stage.script(tab, "candidates.length").await, 0);
    // Every attempt came to the proxy instead.
    let mut asked = Vec::new();
    until("the attempts", async || {
        asked.extend(site.take_asked());
        [
            "192.0.2.1:443",
            "http://127.0.0.1:1234/i.png",
            "http://[::1]:1234/",
            "127.0.0.1:1235",
            "127.0.0.1:3478",
            "direct.example:443",
        ]
        .iter()
        .all(|target| {
            asked
                .iter()
                .any(|asked| asked.target == *target && asked.authorized)
        })
    })
    .await;
    for asked in &asked {
        assert!(
            asked.authorized || asked.target.contains("prime.invalid"),
            "{} {}",
            asked.method,
            asked.target
        );
    }
    stage.browser.close().await;
}
