//! Files of Chromium's profilers, which may come from anywhere.

use std::collections::BTreeMap;

use yonder_analysis::cpu::Profile;
use yonder_analysis::heap::{Heap, Limits, compare};
use yonder_analysis::trace::{Scope, Trace};

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

/// Reads a trace, sums it up, and narrows it to a tab: what is left is a trace again.
pub fn trace(input: &[u8]) {
    if let Ok(trace) = Trace::read(input) {
        let summary = trace.summary(10);
        assert!(summary.events.len() <= 10);
        let scope = Scope::find(input, "main").expect("what was read once is read again");
        let mut narrowed = Vec::new();
        let written = scope.narrow(input, &mut narrowed, &BTreeMap::new());
        if written.is_ok() {
            Trace::read(&*narrowed).expect("what is written is read");
        }
    }
}
