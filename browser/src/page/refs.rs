//! Refs: the numbers by which agents name elements, and the worlds in which these elements are known.
//!
//! Numbers come from one counter of the process and never repeat, so that a ref of one tab is never
//! taken for an element of another. An element keeps its ref as long as it lives.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::scalar::Ref;

use super::world::World;
use crate::frames::FrameInfo;

/// Refs of one document that are remembered; the oldest are given up. Far more than an agent reads.
const REFS_MAX: usize = 100_000;

/// Runs of refs of earlier documents that are remembered, to tell a stale ref from a foreign one.
const STALE_RUNS_MAX: usize = 1_000;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Where an element is known.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) world: Arc<World>,
    /// The element's number there.
    pub(super) number: u64,
}

/// What is remembered of a tab's current document and its frames.
#[derive(Debug, Default)]
pub(crate) struct RefTable {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    places: BTreeMap<u64, Place>,
    /// By world and the element's number there.
    refs: HashMap<(u64, u64), u64>,
    /// Those of the documents that frames show, by frame.
    worlds: HashMap<String, Arc<World>>,
    /// First and last ref of each run, in the order in which they became stale.
    stale: Vec<(u64, u64)>,
}

impl RefTable {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // Every change below leaves the table whole, so that a panic elsewhere does not spoil it.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all refs: the tab shows another document.
    pub(crate) fn clear(&self) {
        let mut table = self.lock();
        table.refs.clear();
        table.worlds.clear();
        for number in std::mem::take(&mut table.places).into_keys() {
            match table.stale.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => table.stale.push((number, number)),
            }
        }
        let surplus = table.stale.len().saturating_sub(STALE_RUNS_MAX);
        table.stale.drain(..surplus);
    }

    /// The ref of the element with `number` in `world`.
    pub(super) fn assign(&self, world: &Arc<World>, number: u64) -> Ref {
        let mut table = self.lock();
        let known = table.refs.get(&(world.id, number)).copied();
        let value = known.unwrap_or_else(|| {
            let value = NEXT.fetch_add(1, Ordering::Relaxed);
            let place = Place {
                world: Arc::clone(world),
                number,
            };
            table.places.insert(value, place);
            table.refs.insert((world.id, number), value);
            if table.places.len() > REFS_MAX
                && let Some((_, oldest)) = table.places.pop_first()
            {
                table.refs.remove(&(oldest.world.id, oldest.number));
            }
            value
        });
        Ref::new(value).expect("the counter starts at 1")
    }

    /// Where the element of `element` is known.
    ///
    /// # Errors
    /// [`ErrorCode::Stale`] for a ref of an earlier document, [`ErrorCode::NotFound`] for one that this
    /// tab never had.
    pub(super) fn place(&self, element: Ref) -> Result<Place, OperationError> {
        let table = self.lock();
        let number = element.number();
        if let Some(place) = table.places.get(&number) {
            return Ok(place.clone());
        }
        let stale = table
            .stale
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&number));
        Err(if stale {
            OperationError::new(
                ErrorCode::Stale,
                format!(
                    "{element} is from an earlier document of the tab; take a new snapshot for current refs"
                ),
            )
        } else {
            OperationError::new(
                ErrorCode::NotFound,
                format!("this tab has no {element}; take refs from its own snapshot or find"),
            )
        })
    }

    /// The world of the document that `frame` showed when it was last looked at.
    pub(super) fn world(&self, frame: &FrameInfo) -> Option<Arc<World>> {
        let table = self.lock();
        let world = table.worlds.get(&frame.id)?;
        (world.session == frame.session).then(|| Arc::clone(world))
    }

    pub(super) fn enter_world(&self, world: Arc<World>) {
        self.lock().worlds.insert(world.frame.clone(), world);
    }

    /// Forgets the worlds of frames that are not among `frames`.
    pub(super) fn keep_worlds(&self, frames: &[FrameInfo]) {
        let mut table = self.lock();
        table
            .worlds
            .retain(|id, _| frames.iter().any(|frame| frame.id == *id));
    }

    /// Forgets `world`, whose document was replaced. Its refs stay, to be told as gone.
    pub(crate) fn leave_world(&self, world: &World) {
        let mut table = self.lock();
        if table
            .worlds
            .get(&world.frame)
            .is_some_and(|known| known.id == world.id)
        {
            table.worlds.remove(&world.frame);
        }
    }
}
