//! Parsed snapshots, kept while they fit a budget.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use yonder_analysis::heap::{Heap, Limits};
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::scalar::FileId;

use crate::files::Stored;

/// Bytes of parsed snapshots that are kept; the one used longest ago goes first. The newest always stays, whatever it takes.
const BUDGET_BYTES: usize = 768 * 1024 * 1024;

/// The parsed snapshots of a session.
#[derive(Debug)]
pub(crate) struct HeapCache {
    /// The one used last is the last.
    heaps: Mutex<Vec<(FileId, Arc<Heap>)>>,
    /// Parsing takes memory beyond the budget, so that one is parsed at a time.
    parsing: Semaphore,
}

impl Default for HeapCache {
    fn default() -> Self {
        Self {
            heaps: Mutex::default(),
            parsing: Semaphore::new(1),
        }
    }
}

impl HeapCache {
    fn known(&self, id: &FileId) -> Option<Arc<Heap>> {
        let mut heaps = self.heaps.lock().unwrap_or_else(PoisonError::into_inner);
        let at = heaps.iter().position(|(known, _)| known == id)?;
        let used = heaps.remove(at);
        let heap = Arc::clone(&used.1);
        heaps.push(used);
        Some(heap)
    }

    fn keep(&self, id: FileId, heap: &Arc<Heap>) {
        let mut heaps = self.heaps.lock().unwrap_or_else(PoisonError::into_inner);
        heaps.push((id, Arc::clone(heap)));
        let mut total: usize = heaps.iter().map(|(_, heap)| heap.memory()).sum();
        while total > BUDGET_BYTES && heaps.len() > 1 {
            total -= heaps.remove(0).1.memory();
        }
    }

    /// The snapshot in `stored`, parsed now if it is not kept.
    ///
    /// # Errors
    /// [`ErrorCode::FileFailed`] if the file is none, or too large.
    ///
    /// # Cancel safety
    /// Dropping the future ends the waiting; the parsing goes on to its end, and nobody gets it.
    pub(super) async fn get(&self, stored: Stored) -> Result<Arc<Heap>, OperationError> {
        let id = stored.entry.id.clone();
        if let Some(heap) = self.known(&id) {
            return Ok(heap);
        }
        let not_read = |reason: String| {
            OperationError::new(
                ErrorCode::FileFailed,
                format!("{id} could not be analysed: {reason}"),
            )
        };
        let _turn = self.parsing.acquire().await;
        if let Some(heap) = self.known(&id) {
            return Ok(heap);
        }
        let parsed = spawn_blocking(move || {
            let file = File::open(&stored.path).map_err(|error| error.to_string())?;
            Heap::read(file, Limits::default()).map_err(|error| error.to_string())
        });
        let heap = match parsed.await {
            Ok(Ok(heap)) => Arc::new(heap),
            Ok(Err(reason)) => return Err(not_read(reason)),
            Err(error) => return Err(not_read(error.to_string())),
        };
        self.keep(id, &heap);
        Ok(heap)
    }
}
