use serde_json::{Value, json};

use super::*;

fn log(entries: u64) -> ConsoleLog {
    let mut log = ConsoleLog::default();
    for number in 0..entries {
        write(&mut log, &format!("message {number}"));
    }
    log
}

fn write(log: &mut ConsoleLog, text: &str) {
    log.add(Level::Info, text, None, Origin::default(), 1.0, None);
}

fn list(log: &ConsoleLog, mut request: Value) -> Listed<ConsoleEntry> {
    request["tabID"] = json!("tab_00000000-0000-0000-0000-000000000000");
    log.list(&serde_json::from_value(request).unwrap()).unwrap()
}

#[test]
fn a_flood_costs_bounded_memory_and_a_short_answer() {
    let log = log(20_000);
    assert_eq!(log.messages.len(), MESSAGES_MAX);
    assert_eq!(log.known.len(), MESSAGES_MAX);
    assert!(log.bytes <= BYTES_MAX);
    let listed = list(&log, json!({}));
    assert_eq!(listed.dropped, 19_000);
    assert!(listed.truncated && listed.total == 1_000);
    assert_eq!(listed.entries.last().unwrap().text, "message 19999");
    let chars = serde_json::to_string(&listed.entries).unwrap().len();
    assert!(chars < 3_100, "{chars}");
    assert_eq!(list(&log, json!({ "limit": 300 })).entries.len(), 300);
}

#[test]
fn large_messages_are_cut_and_bound_the_ring_by_bytes() {
    let mut log = ConsoleLog::default();
    for number in 0..1_000 {
        write(&mut log, &format!("{number}{}", "ü".repeat(10_000)));
    }
    assert!(log.bytes <= BYTES_MAX && log.messages.len() < MESSAGES_MAX);
    let listed = list(&log, json!({ "limit": 1 }));
    assert_eq!(listed.entries[0].text.chars().count(), TEXT_CHARS_MAX);
    assert!(listed.entries[0].text_truncated);
}

#[test]
fn equal_messages_are_one_with_a_count() {
    let mut log = ConsoleLog::default();
    for text in ["a", "b", "a", "a"] {
        write(&mut log, text);
    }
    let listed = list(&log, json!({}));
    let seen: Vec<_> = listed
        .entries
        .iter()
        .map(|entry| (entry.text.as_str(), entry.count))
        .collect();
    assert_eq!(seen, [("b", None), ("a", Some(3))]);
    assert_eq!(log.messages.len(), log.known.len());
}

#[test]
fn a_new_document_starts_empty_and_the_old_one_can_be_asked_for() {
    let mut log = log(3);
    log.next_document();
    write(&mut log, "message 1");
    assert_eq!(list(&log, json!({})).total, 1);
    assert_eq!(list(&log, json!({ "earlier": true })).total, 4);
    let after = list(&log, json!({ "earlier": true, "after": "c2" }));
    assert_eq!(after.entries.len(), 2);
    let before = list(&log, json!({ "earlier": true, "before": "c2" }));
    assert_eq!(before.entries.len(), 1);
    assert_eq!(list(&log, json!({ "contains": "MESSAGE" })).total, 1);
    assert_eq!(list(&log, json!({ "level": "error" })).total, 0);
}

#[test]
fn secrets_in_addresses_are_hidden() {
    let mut log = ConsoleLog::default();
    write(&mut log, "GET http://a.test/?token=abc failed");
    let listed = list(&log, json!({}));
    assert_eq!(
        listed.entries[0].text,
        "GET http://a.test/?token=<redacted> failed"
    );
}
