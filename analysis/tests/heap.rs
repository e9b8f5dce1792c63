//! Heap snapshots: what a small one says, sizes against a slow reference, and files that are none.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::json;
use yonder_analysis::heap::{Heap, HeapError, Limits, compare};

/// Node: type, name, self size, detached, edges of type, name or index, and node.
#[derive(Clone, Debug)]
struct Node {
    kind: &'static str,
    name: String,
    size: u64,
    detached: bool,
    edges: Vec<(&'static str, Name, usize)>,
}

#[derive(Clone, Debug)]
enum Name {
    Text(String),
    Index(u64),
}

const NODE_TYPES: [&str; 14] = [
    "hidden",
    "array",
    "string",
    "object",
    "code",
    "closure",
    "regexp",
    "number",
    "native",
    "synthetic",
    "concatenated string",
    "sliced string",
    "symbol",
    "bigint",
];
const EDGE_TYPES: [&str; 7] = [
    "context", "element", "property", "internal", "hidden", "shortcut", "weak",
];

fn node(kind: &'static str, name: &str, size: u64) -> Node {
    Node {
        kind,
        name: name.to_owned(),
        size,
        detached: false,
        edges: Vec::new(),
    }
}

/// V8 numbers objects oddly.
fn id(index: usize) -> u32 {
    u32::try_from(index * 2 + 1).unwrap()
}

/// The file of a graph.
fn file(nodes: &[Node]) -> Vec<u8> {
    let mut strings: Vec<String> = Vec::new();
    let mut number = |text: &str| {
        strings
            .iter()
            .position(|known| known == text)
            .unwrap_or_else(|| {
                strings.push(text.to_owned());
                strings.len() - 1
            })
    };
    let at = |list: &[&str], kind: &str| list.iter().position(|known| *known == kind).unwrap();
    let (mut records, mut links) = (Vec::new(), Vec::new());
    for (index, node) in nodes.iter().enumerate() {
        records.extend([
            at(&NODE_TYPES, node.kind) as u64,
            number(&node.name) as u64,
            u64::from(id(index)),
            node.size,
            node.edges.len() as u64,
            0,
            if node.detached { 2 } else { 0 },
        ]);
        for (kind, name, to) in &node.edges {
            let name = match name {
                Name::Text(text) => number(text) as u64,
                Name::Index(index) => *index,
            };
            links.extend([at(&EDGE_TYPES, kind) as u64, name, (to * 7) as u64]);
        }
    }
    let rest = "x".repeat(12);
    json!({
        "snapshot": {
            "meta": {
                "node_fields": ["type", "name", "id", "self_size", "edge_count", "trace_node_id", "detachedness"],
                "node_types": [NODE_TYPES, "string", "number", "number", "number", "number", "number"],
                "edge_fields": ["type", "name_or_index", "to_node"],
                "edge_types": [EDGE_TYPES, "string_or_number", "node"],
                "comment": rest,
            },
            "node_count": nodes.len(),
            "edge_count": links.len() / 3,
            "trace_function_count": 0,
        },
        "nodes": records,
        "edges": links,
        "trace_function_infos": [],
        "trace_tree": [[1, [2, "\"]"]], { "a": null, "b": [-1.5e3, true] }],
        "samples": [],
        "locations": [],
        "strings": strings,
    })
    .to_string()
    // Keys of a JSON object have no order here, those of a snapshot do.
    .into_bytes()
}

/// `file` in the order in which V8 writes it.
fn ordered(nodes: &[Node]) -> Vec<u8> {
    let value: serde_json::Value = serde_json::from_slice(&file(nodes)).unwrap();
    let parts = [
        "snapshot",
        "nodes",
        "edges",
        "trace_function_infos",
        "trace_tree",
        "samples",
        "locations",
        "strings",
    ];
    let parts: Vec<_> = parts
        .iter()
        .map(|part| format!("\"{part}\":{}", value[part]))
        .collect();
    format!("{{{}}}\n", parts.join(",\n")).into_bytes()
}

fn read(nodes: &[Node]) -> Heap {
    Heap::read(ordered(nodes).as_slice(), Limits::default()).unwrap()
}

fn text(name: &str) -> Name {
    Name::Text(name.to_owned())
}

/// A window with a cache that holds two buffers, and a detached list of three nodes that a closure keeps.
fn page() -> Vec<Node> {
    let mut nodes = vec![
        node("synthetic", "", 0),
        node("object", "Window", 100),
        node("object", "Cache", 20),
        node("object", "Buffer", 1_000),
        node("object", "Buffer", 3_000),
        node("closure", "onclick", 64),
        node("native", "<ul>", 40),
        node("native", "<li>", 30),
        node("native", "<li>", 30),
        node("object", "Watcher", 7),
    ];
    nodes[0].edges = vec![("shortcut", text("window"), 1)];
    nodes[1].edges = vec![
        ("property", text("cache"), 2),
        ("property", text("onclick"), 5),
        ("property", text("big"), 4),
    ];
    nodes[2].edges = vec![
        ("element", Name::Index(0), 3),
        ("element", Name::Index(1), 4),
    ];
    nodes[3].edges = vec![("weak", text("watcher"), 9)];
    nodes[5].edges = vec![("context", text("list"), 6)];
    nodes[6].edges = vec![
        ("element", Name::Index(0), 7),
        ("element", Name::Index(1), 8),
    ];
    for element in &mut nodes[6..9] {
        element.detached = true;
    }
    nodes
}

#[test]
fn a_summary_names_what_retains_and_what_is_detached() {
    let summary = read(&page()).summary(3);
    assert_eq!(
        (summary.nodes, summary.edges, summary.self_bytes),
        (10, 10, 4_291)
    );
    assert_eq!(summary.detached_total, 3);
    assert_eq!(
        summary
            .detached
            .iter()
            .map(|d| (d.name.as_str(), d.count))
            .collect::<Vec<_>>(),
        [("<li>", 2), ("<ul>", 1)]
    );
    let names: Vec<_> = summary
        .largest
        .iter()
        .map(|node| node.name.as_str())
        .collect();
    assert_eq!(names, ["Window", "Buffer", "Cache"]);
    assert_eq!(
        summary.largest[2].retained_bytes, 1_020,
        "one of the buffers has another owner"
    );
    let buffers = summary
        .classes
        .iter()
        .find(|class| class.name == "Buffer")
        .unwrap();
    assert_eq!(
        (buffers.count, buffers.self_bytes, buffers.retained_bytes),
        (2, 4_000, 4_000)
    );
}

#[test]
fn objects_tell_their_neighbourhood() {
    let heap = read(&page());
    let item = heap.object(id(7), 10).unwrap();
    assert_eq!(item.dominator.name, "<ul>");
    let path: Vec<_> = item
        .path
        .iter()
        .map(|step| (step.name.as_str(), step.node.name.as_str()))
        .collect();
    assert_eq!(
        path,
        [
            ("[0]", "<ul>"),
            ("list", "onclick"),
            ("onclick", "Window"),
            ("window", "")
        ]
    );
    let cache = heap.object(id(2), 1).unwrap();
    assert_eq!((cache.references.len(), cache.references_total), (1, 2));
    assert_eq!(cache.references[0].name, "[1]", "the larger first");
    assert_eq!(cache.retainers[0].node.class, "Window");
    let watcher = heap.object(id(9), 10).unwrap();
    assert!(watcher.path.is_empty() && watcher.retainers[0].weak);
    assert!(heap.object(4_000, 10).is_none());
    let (found, total) = heap.query("BUFF", 1);
    assert_eq!((found.len(), total, found[0].self_bytes), (1, 2, 3_000));
}

#[test]
fn comparing_counts_exactly() {
    let before = page();
    let mut after = page();
    for _ in 0..5 {
        let new = after.len();
        after.push(node("native", "<li>", 30));
        after[6].edges.push(("element", Name::Index(9), new));
    }
    after[3].size = 0;
    let changes = compare(&read(&before), &read(&after));
    let told: Vec<_> = changes
        .iter()
        .map(|c| (c.name.as_str(), c.count_delta, c.bytes_delta))
        .collect();
    assert_eq!(told, [("Buffer", 0, -1_000), ("<li>", 5, 150)]);
    assert!(compare(&read(&before), &read(&before)).is_empty());
}

#[test]
fn strings_are_read_as_json_has_them() {
    let mut nodes = page();
    nodes[2].name = "a \"quoted\" \\ \u{1f600} \n name".to_owned();
    let (found, _) = read(&nodes).query("quoted", 1);
    assert_eq!(found[0].name, nodes[2].name);
    let mut bytes = ordered(&page());
    let at = bytes.windows(5).position(|part| part == b"Cache").unwrap();
    bytes.splice(at..at + 5, *br"\ud83d\ude00\ud800\u0041\/");
    let heap = Heap::read(bytes.as_slice(), Limits::default()).unwrap();
    assert_eq!(
        heap.object(id(2), 1).unwrap().node.name,
        "\u{1f600}\u{fffd}A/"
    );
}

#[test]
fn what_is_no_snapshot_is_told() {
    let good = String::from_utf8(ordered(&page())).unwrap();
    assert!(good.contains("\"node_count\":10"), "{good}");
    for (bad, what) in [
        (String::new(), "ends early"),
        ("[1]".to_owned(), "object"),
        ("{\"traceEvents\":[]}".to_owned(), "missing"),
        (good[..good.len() / 2].to_owned(), "ends early"),
        (
            good.replace("\"node_count\":10", "\"node_count\":9"),
            "more nodes",
        ),
        (
            good.replace("\"edge_count\":10", "\"edge_count\":9"),
            "more edges",
        ),
        (good.replace("\"to_node\"", "\"to\""), "lacks a field"),
        (good.replace("\"nodes\":[", "\"nodes\":[1,"), ""),
        (good.replace("\"edges\":[5,", "\"edges\":[5,1e3,"), ""),
    ] {
        let error = Heap::read(bad.as_bytes(), Limits::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
    let few = Limits {
        nodes: 9,
        edges: 100,
    };
    assert!(matches!(
        Heap::read(good.as_bytes(), few),
        Err(HeapError::TooLarge {
            what: "nodes",
            count: 10,
            limit: 9
        })
    ));
}

/// Nodes that can be reached without `without`, over the edges that retain.
fn reached(nodes: &[Node], of_page: &HashSet<usize>, without: Option<usize>) -> HashSet<usize> {
    let mut seen = HashSet::new();
    let mut waiting = vec![0];
    while let Some(at) = waiting.pop() {
        if Some(at) == without || !seen.insert(at) {
            continue;
        }
        for (kind, _, to) in &nodes[at].edges {
            let counts = match *kind {
                "weak" => false,
                "shortcut" => at == 0,
                _ => true,
            };
            let allowed = at == 0 || of_page.contains(&at) || !of_page.contains(to);
            if counts && allowed {
                waiting.push(*to);
            }
        }
    }
    seen
}

fn owned_by_page(nodes: &[Node]) -> HashSet<usize> {
    let mut owned = HashSet::new();
    let roots = nodes[0].edges.iter().filter(|edge| edge.0 == "shortcut");
    let mut waiting: Vec<usize> = roots.map(|edge| edge.2).collect();
    while let Some(at) = waiting.pop() {
        if owned.insert(at) {
            waiting.extend(
                nodes[at]
                    .edges
                    .iter()
                    .filter(|edge| edge.0 != "weak")
                    .map(|edge| edge.2),
            );
        }
    }
    owned
}

fn graphs() -> impl Strategy<Value = Vec<Node>> {
    let edge = (0_usize..5, 0_usize..24);
    let one = (1_u64..100, prop::collection::vec(edge, 0..5));
    prop::collection::vec(one, 1..24).prop_map(|list| {
        let count = list.len();
        let kinds = ["property", "element", "weak", "shortcut", "internal"];
        list.into_iter()
            .enumerate()
            .map(|(index, (size, edges))| {
                let mut made = node("object", &format!("n{index}"), size);
                made.edges = edges
                    .into_iter()
                    .map(|(kind, to)| match kinds[kind] {
                        "element" => ("element", Name::Index(3), to % count),
                        kind => (kind, text("edge"), to % count),
                    })
                    .collect();
                made
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn retained_sizes_are_those_of_a_slow_reference(nodes in graphs()) {
        let heap = read(&nodes);
        let of_page = owned_by_page(&nodes);
        let all = reached(&nodes, &of_page, None);
        for at in 1..nodes.len() {
            let told = heap.object(id(at), 0).unwrap().node.retained_bytes;
            let expected: u64 = if all.contains(&at) {
                let left = reached(&nodes, &of_page, Some(at));
                all.difference(&left).map(|lost| nodes[*lost].size).sum()
            } else {
                nodes[at].size
            };
            prop_assert_eq!(told, expected, "node {}", at);
        }
    }

    #[test]
    fn damaged_files_are_answered(nodes in graphs(), at in 0_usize..10_000, byte: u8, cut: bool) {
        let mut bytes = ordered(&nodes);
        let at = at % bytes.len();
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        if let Ok(heap) = Heap::read(bytes.as_slice(), Limits::default()) {
            let summary = heap.summary(5);
            prop_assert!(summary.classes.len() <= 5);
            let _ = heap.object(1, 5);
            let _ = heap.query("n", 5);
        }
    }
}
