//! CPU profiles: whose time it was, and files that are none.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use serde_json::{Value, json};
use yonder_analysis::cpu::{Profile, ProfileError};

fn node(id: u64, name: &str, line: i64, children: &[u64]) -> Value {
    let url = if line < 0 { "" } else { "http://site/app.js" };
    json!({
        "id": id,
        "callFrame": { "functionName": name, "scriptId": "1", "url": url, "lineNumber": line, "columnNumber": line },
        "hitCount": 0,
        "children": children,
    })
}

fn profile() -> Value {
    json!({
        "nodes": [
            node(1, "(root)", -1, &[2, 5, 6]),
            node(2, "main", 9, &[3]),
            node(3, "again", 19, &[4]),
            node(4, "again", 19, &[7]),
            node(5, "(idle)", -1, &[]),
            node(6, "(garbage collector)", -1, &[]),
            node(7, "", 29, &[]),
        ],
        "startTime": 1_000_000,
        "endTime": 1_001_000,
        "samples": [2, 3, 4, 7, 5, 6],
        "timeDeltas": [100, 10, 20, 40, 80, 160],
    })
}

fn read(value: &Value) -> Result<Profile, ProfileError> {
    Profile::read(value.to_string().as_bytes())
}

#[test]
fn time_is_that_between_samples() {
    let summary = read(&profile()).unwrap().summary(10);
    assert_eq!((summary.duration_us, summary.samples), (1_000, 6));
    // The last sample lasts until the end.
    assert_eq!((summary.idle_us, summary.gc_us), (160, 590));
    let told: Vec<_> = (summary.functions.iter())
        .map(|f| (f.name.as_str(), f.line, f.self_us, f.total_us))
        .collect();
    assert_eq!(
        told,
        [
            ("(anonymous)", 30, 80, 80),
            ("again", 20, 60, 140),
            ("main", 10, 10, 150)
        ]
    );
    assert_eq!(
        summary.stacks[0].frames,
        [
            "(anonymous) (http://site/app.js:30)",
            "again (http://site/app.js:20)",
            "again (http://site/app.js:20)",
            "main (http://site/app.js:10)"
        ]
    );
    let few = read(&profile()).unwrap().summary(1);
    assert_eq!(
        (few.functions.len(), few.functions_total, few.stacks.len()),
        (1, 3, 1)
    );
}

#[test]
fn what_is_no_profile_is_told() {
    assert!(matches!(
        Profile::read(&b"[]"[..]),
        Err(ProfileError::Malformed(_))
    ));
    let changed = |path: &str, value: Value| {
        let mut profile = profile();
        *profile.pointer_mut(path).unwrap() = value;
        read(&profile).unwrap_err().to_string()
    };
    for (path, value, word) in [
        ("/samples/0", json!(99), "sample"),
        ("/nodes/6/children", json!([1]), "tree"),
        ("/nodes/6/children", json!([7]), "tree"),
        ("/nodes/6/children", json!([77]), "child"),
        ("/nodes/6/id", json!(1), "same id"),
        ("/startTime", json!("x"), "startTime"),
    ] {
        let error = changed(path, value);
        assert!(
            error.contains(word) || word == "startTime",
            "{path}: {error}"
        );
    }
}

proptest! {
    #[test]
    fn damaged_files_are_answered(at in 0_usize..1_000, byte: u8) {
        let mut bytes = profile().to_string().into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(profile) = Profile::read(bytes.as_slice()) {
            prop_assert!(profile.summary(3).functions.len() <= 3);
        }
    }
}
