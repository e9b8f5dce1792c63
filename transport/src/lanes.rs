//! The lanes of one link as its handles see them: which one a new stream goes to, and closing them all.
//!
//! Each lane has a carrier, a driver and stream numbers of its own, and is resumed by itself; a stream stays on the lane that
//! it was opened on. The link lives as long as its main lane. Further ones come and go with what there is to carry
//! ([`spread`]).

pub(crate) mod spread;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use yonder_protocol::link::{CloseCode, OpenKind};

use crate::hub::{Figures, Hub};
use crate::link::CloseReason;

/// The lanes of one link.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// The first one, which lives as long as the link. Calls and their answers travel on it.
    main: Arc<Hub>,
    further: Mutex<Further>,
    /// Told when a stream met only busy lanes, or a lane became busy.
    crowded: Arc<Notify>,
    /// What the further lanes that are over had moved.
    gone: Figures,
}

#[derive(Debug, Default)]
struct Further {
    lanes: Vec<Arc<Hub>>,
    /// Those that were asked to close and take no new streams.
    retiring: Vec<Arc<Hub>>,
    /// Why the link closes, once it does.
    closing: Option<(CloseCode, String)>,
}

impl Lanes {
    /// The lanes of a link that has one.
    pub(crate) fn new(main: Arc<Hub>) -> Arc<Self> {
        let crowded = main.crowded();
        Arc::new(Self {
            main,
            further: Mutex::default(),
            crowded,
            gone: Figures::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Further> {
        self.further.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn main(&self) -> &Arc<Hub> {
        &self.main
    }

    /// Takes a further lane in.
    pub(crate) fn add(&self, lane: Arc<Hub>) {
        let mut further = self.lock();
        if let Some((code, text)) = &further.closing {
            lane.request_close(*code, text.clone());
        }
        further.lanes.push(lane);
    }

    /// Forgets a further lane that is over. One whose peer broke the rules of the wire takes the link with it.
    pub(crate) fn remove(&self, lane: &Arc<Hub>) {
        let mut further = self.lock();
        further.lanes.retain(|other| !Arc::ptr_eq(other, lane));
        further.retiring.retain(|other| !Arc::ptr_eq(other, lane));
        self.gone.take_over(&lane.figures);
        drop(further);
        if let Some(CloseReason::Protocol(text)) = lane.closed() {
            // A half that breaks the rules on one lane is not to be trusted on the others.
            self.request_close(CloseCode::Protocol, text);
        }
    }

    /// Further lanes.
    pub(crate) fn further(&self) -> usize {
        self.lock().lanes.len()
    }

    /// Asks all lanes to close; the first request counts.
    pub(crate) fn request_close(&self, code: CloseCode, text: &str) {
        self.main.request_close(code, text.to_owned());
        self.close_further(code, text);
    }

    /// The main lane is over, and the further ones with it.
    pub(crate) fn main_is_over(&self) {
        let code = match self.main.closed() {
            Some(CloseReason::Local { code, .. }) => *code,
            _ => CloseCode::Detached,
        };
        self.close_further(code, "the link is over");
    }

    fn close_further(&self, code: CloseCode, text: &str) {
        let mut further = self.lock();
        further
            .closing
            .get_or_insert_with(|| (code, text.to_owned()));
        for lane in further.lanes.iter().chain(&further.retiring) {
            lane.request_close(code, text.to_owned());
        }
    }

    /// The lane for a new stream of `kind`, which is counted there at once.
    ///
    /// Of the lanes that have a carrier and no bulk, the one with the fewest streams: what turns out to be bulk then meets few
    /// others. When all are busy, the one with the least waiting.
    pub(crate) fn choose(&self, kind: &OpenKind) -> Arc<Hub> {
        if *kind == OpenKind::Call {
            self.main.count_open();
            return Arc::clone(&self.main);
        }
        let further = self.lock();
        let mut best = &self.main;
        for lane in &further.lanes {
            if lane.rank() < best.rank() {
                best = lane;
            }
        }
        // Counted under the lock, so that a lane with a stream on its way is not taken for an empty one.
        best.count_open();
        if best.is_busy() {
            self.crowded.notify_one();
        }
        Arc::clone(best)
    }

    /// Whether every lane carries bulk.
    fn are_all_busy(&self) -> bool {
        self.main.is_busy() && self.lock().lanes.iter().all(|lane| lane.is_busy())
    }

    /// Takes out a further lane beyond the first `kept` that had no stream for a while, and asks it to close.
    fn retire(&self, kept: usize) {
        let mut further = self.lock();
        let idle = further
            .lanes
            .iter()
            .skip(kept)
            .position(|lane| lane.is_unused());
        if let Some(at) = idle {
            let lane = further.lanes.remove(kept + at);
            lane.request_close(
                CloseCode::Retired,
                "the lane is not needed any more".to_owned(),
            );
            further.retiring.push(lane);
        }
    }

    /// Sums `figure` over the lanes that there are.
    pub(crate) fn sum(&self, figure: impl Fn(&Hub) -> u64) -> u64 {
        let further: u64 = self.lock().lanes.iter().map(|lane| figure(lane)).sum();
        figure(&self.main) + further
    }

    /// Sums `figure` over all lanes, those that are over included.
    pub(crate) fn total(&self, figure: fn(&Figures) -> &AtomicU64) -> u64 {
        let read = |figures: &Figures| figure(figures).load(Ordering::Relaxed);
        // Under one lock, so that no lane is missed or counted twice.
        let further = self.lock();
        let lanes: u64 = (further.lanes.iter().chain(&further.retiring))
            .map(|lane| read(&lane.figures))
            .sum();
        read(&self.gone) + read(&self.main.figures) + lanes
    }
}
