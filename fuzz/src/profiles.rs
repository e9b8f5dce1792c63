//! Files of Chromium's profilers, which may come from anywhere.

use yonder_analysis::cpu::Profile;
use yonder_analysis::heap::{Heap, Limits, compare};

/// Reads a heap snapshot and asks everything of it.
pub fn heap_snapshot(input: &[u8]) {
    let limits = Limits {
        nodes: 10_000,
        edges: 10_000,
    };
    if let Ok(heap) = Heap::read(input, limits) {
        let summary = heap.summary(10);
        for node in &summary.largest {
            let object = heap.object(node.id, 10);
            assert!(object.is_some(), "a listed node is there");
        }
        let _ = heap.query("a", 10);
        assert!(compare(&heap, &heap).is_empty());
    }
}

/// Reads a CPU profile and sums it up.
pub fn cpu_profile(input: &[u8]) {
    if let Ok(profile) = Profile::read(input) {
        let summary = profile.summary(10);
        assert!(summary.functions.len() <= 10);
    }
}
