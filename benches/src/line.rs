//! An emulated line between two network namespaces: delay, rate, a queue that drops at its tail, and random loss.
//!
//! Each end is a TUN device, so the kernels' own TCP runs on both sides; this process carries the packets from one to the other.
//! It needs no `tc netem`, which many kernels lack.

use std::io::{self, BufRead as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::process::pause;

/// Largest packet, as on Ethernet.
pub(crate) const MTU: u16 = 1500;

/// Bytes of a full packet that are TCP payload: the IPv4 header takes 20, that of TCP 20 and its timestamps 12.
pub(crate) const PAYLOAD_OF_MTU: u16 = MTU - 52;

/// Packets under way in one direction; far above what any sensible line holds (8 MB).
const UNDER_WAY_MOST: usize = 8192;

/// Loss is drawn from this seed, so that two runs lose alike.
const SEED: u64 = 0x596f_6e64_6572;

/// What the line does, the same both ways.
#[derive(Args, Clone, Debug)]
pub(crate) struct LineArguments {
    /// Name of the device at the near end.
    #[arg(long)]
    pub(crate) near: String,
    /// Name of the device at the far end.
    #[arg(long)]
    pub(crate) far: String,
    /// Delay one way, in milliseconds.
    #[arg(long)]
    pub(crate) delay_ms: u64,
    /// Bits per microsecond.
    #[arg(long)]
    pub(crate) mbit: u32,
    /// The queue in front of the line, in milliseconds of its rate.
    #[arg(long)]
    pub(crate) queue_ms: u64,
    /// Packets lost, per thousand.
    #[arg(long)]
    pub(crate) loss_per_mille: u32,
}

/// What standard input may say: the line goes silent, or carries packets again.
pub(crate) const SILENT: &str = "silent";
pub(crate) const CARRY: &str = "carry";

/// Carries packets until killed or standard input ends.
pub(crate) fn run(arguments: &LineArguments) -> anyhow::Result<()> {
    let near = open(&arguments.near)?;
    let far = open(&arguments.far)?;
    let silent = Arc::new(AtomicBool::new(false));
    for (index, (from, to)) in [(&near, &far), (&far, &near)].into_iter().enumerate() {
        let (sender, receiver) = sync_channel(UNDER_WAY_MOST);
        let entry = Entry {
            device: Arc::clone(from),
            silent: Arc::clone(&silent),
            random: StdRng::seed_from_u64(SEED + index as u64),
            loss: f64::from(arguments.loss_per_mille) / 1000.0,
            rate: f64::from(arguments.mbit) * 1e6 / 8.0,
            delay: Duration::from_millis(arguments.delay_ms),
            queue: Duration::from_millis(arguments.queue_ms),
        };
        std::thread::spawn(move || entry.take(&sender));
        let to = Arc::clone(to);
        std::thread::spawn(move || deliver(&to, &receiver));
    }
    println!("ready");
    for line in io::stdin().lock().lines() {
        match line?.as_str() {
            SILENT => silent.store(true, Ordering::Relaxed),
            CARRY => silent.store(false, Ordering::Relaxed),
            other => anyhow::bail!("the line was told {other:?}"),
        }
    }
    Ok(())
}

fn open(name: &str) -> anyhow::Result<Arc<SyncDevice>> {
    let device = DeviceBuilder::new()
        .name(name)
        .mtu(MTU)
        .build_sync()
        .with_context(|| format!("could not make the TUN device {name}"))?;
    Ok(Arc::new(device))
}

struct Packet {
    bytes: Vec<u8>,
    at: Instant,
}

/// One end, where packets enter.
struct Entry {
    device: Arc<SyncDevice>,
    silent: Arc<AtomicBool>,
    random: StdRng,
    /// Probability.
    loss: f64,
    /// Bytes a second.
    rate: f64,
    delay: Duration,
    queue: Duration,
}

impl Entry {
    fn take(mut self, line: &SyncSender<Packet>) {
        let mut free_at = Instant::now();
        let mut buffer = [0; MTU as usize];
        // An error says that the device is gone, and with it the line.
        while let Ok(length) = self.device.recv(&mut buffer) {
            let now = Instant::now();
            let starts = free_at.max(now);
            if self.silent.load(Ordering::Relaxed)
                || starts - now > self.queue
                || self.random.random_bool(self.loss)
            {
                continue;
            }
            #[allow(clippy::cast_precision_loss, reason = "at most an MTU")]
            let time = Duration::from_secs_f64(length as f64 / self.rate);
            free_at = starts + time;
            let packet = Packet {
                bytes: buffer[..length].to_vec(),
                at: free_at + self.delay,
            };
            match line.try_send(packet) {
                Ok(()) | Err(TrySendError::Full(_)) => {}
                Err(TrySendError::Disconnected(_)) => return,
            }
        }
    }
}

fn deliver(device: &SyncDevice, line: &Receiver<Packet>) {
    while let Ok(packet) = line.recv() {
        let left = packet.at.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            pause(left);
        }
        // Fails while the device moves to its namespace; packets are lost then as on any line.
        let _ = device.send(&packet.bytes);
    }
}
