//! What changed between two snapshots.

use std::collections::HashSet;

use super::Heap;

/// How a class changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClassChange {
    /// As the Memory panel calls it.
    pub name: String,
    /// Objects more.
    pub count_delta: i64,
    /// Bytes of the objects themselves, more.
    pub bytes_delta: i64,
}

/// The classes that differ, the largest change of bytes first.
pub fn compare(before: &Heap, after: &Heap) -> Vec<ClassChange> {
    let (before, after) = (before.classes(), after.classes());
    let names: HashSet<&str> = before.keys().chain(after.keys()).copied().collect();
    let signed = |value: Option<u64>| i64::try_from(value.unwrap_or(0)).unwrap_or(i64::MAX);
    let mut changes: Vec<_> = names
        .into_iter()
        .map(|name| {
            let (old, new) = (before.get(name), after.get(name));
            ClassChange {
                name: name.to_owned(),
                count_delta: signed(new.map(|sum| sum.count)) - signed(old.map(|sum| sum.count)),
                bytes_delta: signed(new.map(|sum| sum.self_bytes))
                    - signed(old.map(|sum| sum.self_bytes)),
            }
        })
        .filter(|change| change.count_delta != 0 || change.bytes_delta != 0)
        .collect();
    changes.sort_unstable_by(|a, b| {
        (
            b.bytes_delta.unsigned_abs(),
            b.count_delta.unsigned_abs(),
            &a.name,
        )
            .cmp(&(
                a.bytes_delta.unsigned_abs(),
                a.count_delta.unsigned_abs(),
                &b.name,
            ))
    });
    changes
}
