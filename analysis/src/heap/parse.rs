//! From the file to the arrays.

use std::io::Read;

use serde::Deserialize;

use super::dominators::Dominators;
use super::scan::Scanner;
use super::strings::Strings;
use super::{EdgeKind, Edges, Heap, Incoming, NodeKind, Nodes, ROOT};

/// Longest text of the `snapshot` object; real ones have about 2 KiB.
const DESCRIPTION_BYTES: usize = 64 * 1024;

/// Longest key at the top of the file.
const KEY_BYTES: usize = 64;

/// Of each string this many bytes are kept: names are short, and pages keep whole documents in strings.
const STRING_BYTES: usize = 1_024;

/// Fields that a node or an edge may have; V8 writes up to seven.
const FIELDS_MAX: usize = 32;

/// What a snapshot may cost at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Nodes.
    pub nodes: u64,
    /// Edges.
    pub edges: u64,
}

impl Default for Limits {
    /// For some 2 GiB of memory: the snapshot of a heap of about 600 MiB, which is 2 GB of JSON.
    fn default() -> Self {
        Self {
            nodes: 32_000_000,
            edges: 100_000_000,
        }
    }
}

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// The file could not be read.
    #[error("the file could not be read: {0}")]
    Read(#[source] std::io::Error),
    /// It is no heap snapshot, or a damaged one.
    #[error("it is not a heap snapshot of V8, or is damaged: {what}, at byte {offset}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Where.
        offset: u64,
    },
    /// It is larger than [`Limits`].
    #[error("the snapshot has {count} {what}, at most {limit} are analysed")]
    TooLarge {
        /// Nodes or edges.
        what: &'static str,
        /// As many as the file says.
        count: u64,
        /// The limit.
        limit: u64,
    },
}

#[derive(Deserialize)]
struct Description {
    meta: Meta,
    node_count: u64,
    edge_count: u64,
}

#[derive(Deserialize)]
struct Meta {
    node_fields: Vec<String>,
    node_types: Vec<Type>,
    edge_fields: Vec<String>,
    edge_types: Vec<Type>,
}

/// The names of an enumeration, or the name of a scalar type.
#[derive(Deserialize)]
#[serde(untagged)]
enum Type {
    Names(Vec<String>),
    Scalar(#[allow(dead_code, reason = "only its being no list matters")] String),
}

impl Meta {
    fn place(fields: &[String], name: &str) -> Option<usize> {
        fields.iter().position(|field| field == name)
    }
}

/// Where the fields of a node are.
struct NodeLayout {
    width: usize,
    kind: usize,
    name: usize,
    id: usize,
    self_size: usize,
    edge_count: usize,
    detachedness: Option<usize>,
    kinds: Vec<NodeKind>,
}

/// Where the fields of an edge are.
struct EdgeLayout {
    width: usize,
    kind: usize,
    name: usize,
    to: usize,
    kinds: Vec<EdgeKind>,
}

impl Description {
    fn node_layout(&self) -> Option<NodeLayout> {
        let fields = &self.meta.node_fields;
        let at = |name| Meta::place(fields, name);
        let kind = at("type")?;
        let Type::Names(names) = self.meta.node_types.get(kind)? else {
            return None;
        };
        let kinds = names.iter().enumerate().map(|(number, name)| {
            Some(match name.as_str() {
                "hidden" => NodeKind::Hidden,
                "object" => NodeKind::Object,
                "native" => NodeKind::Native,
                "code" => NodeKind::Code,
                "closure" => NodeKind::Closure,
                "regexp" => NodeKind::RegExp,
                "synthetic" => NodeKind::Synthetic,
                _ => NodeKind::Other(u8::try_from(number).ok()?),
            })
        });
        Some(NodeLayout {
            width: (fields.len() <= FIELDS_MAX).then_some(fields.len())?,
            kind,
            name: at("name")?,
            id: at("id")?,
            self_size: at("self_size")?,
            edge_count: at("edge_count")?,
            detachedness: at("detachedness"),
            kinds: kinds.collect::<Option<_>>()?,
        })
    }

    fn edge_layout(&self) -> Option<EdgeLayout> {
        let fields = &self.meta.edge_fields;
        let at = |name| Meta::place(fields, name);
        let kind = at("type")?;
        let Type::Names(names) = self.meta.edge_types.get(kind)? else {
            return None;
        };
        let kinds = names.iter().map(|name| match name.as_str() {
            "element" => EdgeKind::Element,
            "hidden" => EdgeKind::Hidden,
            "internal" => EdgeKind::Internal,
            "shortcut" => EdgeKind::Shortcut,
            "weak" => EdgeKind::Weak,
            _ => EdgeKind::Named,
        });
        Some(EdgeLayout {
            width: (fields.len() <= FIELDS_MAX).then_some(fields.len())?,
            kind,
            name: at("name_or_index")?,
            to: at("to_node")?,
            kinds: kinds.collect(),
        })
    }

    fn type_names(&self) -> Vec<String> {
        let kind = Meta::place(&self.meta.node_fields, "type");
        match kind.and_then(|kind| self.meta.node_types.get(kind)) {
            Some(Type::Names(names)) => names.iter().map(|name| format!("({name})")).collect(),
            _ => Vec::new(),
        }
    }
}

impl Heap {
    /// Parses a snapshot, and computes what dominates what.
    ///
    /// # Errors
    /// See [`HeapError`]. Memory is taken as the file grows, never for what it only claims.
    pub fn read(input: impl Read, limits: Limits) -> Result<Self, HeapError> {
        let mut scanner = Scanner::new(input);
        let mut description = None;
        let mut nodes = None;
        let mut edges = None;
        let mut strings = Strings::default();
        let mut key = Vec::new();
        let mut first = true;
        scanner.expect(b'{', "it does not begin with an object")?;
        while scanner.item(b'}', &mut first)? {
            scanner.token()?;
            scanner.string(&mut key, KEY_BYTES)?;
            scanner.expect(b':', "expected a colon")?;
            match (key.as_slice(), &description) {
                (b"snapshot", None) => description = Some(describe(&mut scanner, limits)?),
                (b"nodes", Some(about)) if nodes.is_none() => {
                    nodes = Some(read_nodes(&mut scanner, about)?);
                }
                (b"edges", Some(about)) if edges.is_none() => {
                    edges = Some(read_edges(&mut scanner, about)?);
                }
                (b"strings", Some(_)) if strings.len() == 0 => {
                    read_strings(&mut scanner, &mut strings)?;
                }
                (b"snapshot" | b"nodes" | b"edges" | b"strings", _) => {
                    return Err(scanner.malformed("its parts are out of order"));
                }
                _ => scanner.skip_value()?,
            }
        }
        let (Some(about), Some(nodes), Some(edges)) = (description, nodes, edges) else {
            return Err(scanner.malformed("a part is missing"));
        };
        check(&scanner, &nodes, &edges)?;
        let incoming = Incoming::new(&nodes, &edges);
        let dominators = Dominators::new(&nodes, &edges, &incoming, &strings);
        Ok(Self {
            nodes,
            edges,
            strings,
            type_names: about.description.type_names(),
            incoming,
            dominators,
        })
    }
}

/// What the file says of itself.
struct About {
    description: Description,
    node: NodeLayout,
    edge: EdgeLayout,
}

fn describe<R: Read>(scanner: &mut Scanner<R>, limits: Limits) -> Result<About, HeapError> {
    let text = scanner.object_text(DESCRIPTION_BYTES)?;
    let description: Description = serde_json::from_slice(&text)
        .map_err(|_| scanner.malformed("its description lacks something"))?;
    for (what, count, limit) in [
        ("nodes", description.node_count, limits.nodes),
        ("edges", description.edge_count, limits.edges),
    ] {
        if count > limit {
            return Err(HeapError::TooLarge { what, count, limit });
        }
    }
    let (Some(node), Some(edge)) = (description.node_layout(), description.edge_layout()) else {
        return Err(scanner.malformed("its description lacks a field of nodes or edges"));
    };
    Ok(About {
        description,
        node,
        edge,
    })
}

/// Reads one record of `width` numbers into `record`; `false` at the end of the array.
#[inline]
fn record<R: Read>(
    scanner: &mut Scanner<R>,
    record: &mut [u64],
    first: &mut bool,
) -> Result<bool, HeapError> {
    for (at, field) in record.iter_mut().enumerate() {
        if !scanner.item(b']', first)? {
            if at == 0 {
                return Ok(false);
            }
            return Err(scanner.malformed("an array ends within a record"));
        }
        *field = scanner.number()?;
    }
    Ok(true)
}

fn narrow<R: Read>(scanner: &Scanner<R>, value: u64) -> Result<u32, HeapError> {
    u32::try_from(value).map_err(|_| scanner.malformed("a number is too large"))
}

fn read_nodes<R: Read>(scanner: &mut Scanner<R>, about: &About) -> Result<Nodes, HeapError> {
    let layout = &about.node;
    let mut nodes = Nodes::default();
    let mut fields = vec![0; layout.width];
    let mut first = true;
    let mut edge = 0_u64;
    scanner.expect(b'[', "nodes is no array")?;
    while record(scanner, &mut fields, &mut first)? {
        if nodes.name.len() as u64 >= about.description.node_count {
            return Err(scanner.malformed("more nodes than it says"));
        }
        let kind = usize::try_from(fields[layout.kind])
            .ok()
            .and_then(|kind| layout.kinds.get(kind));
        let kind = kind.ok_or_else(|| scanner.malformed("a node of an unknown type"))?;
        nodes.kind.push(*kind);
        nodes.name.push(narrow(scanner, fields[layout.name])?);
        nodes.id.push(narrow(scanner, fields[layout.id])?);
        nodes.self_size.push(fields[layout.self_size]);
        nodes.first_edge.push(narrow(scanner, edge)?);
        nodes
            .detached
            .push(layout.detachedness.is_some_and(|at| fields[at] == 2));
        edge = edge.saturating_add(fields[layout.edge_count]);
    }
    nodes.first_edge.push(narrow(scanner, edge)?);
    Ok(nodes)
}

fn read_edges<R: Read>(scanner: &mut Scanner<R>, about: &About) -> Result<Edges, HeapError> {
    let layout = &about.edge;
    let width = about.node.width as u64;
    let mut edges = Edges::default();
    let mut fields = vec![0; layout.width];
    let mut first = true;
    scanner.expect(b'[', "edges is no array")?;
    while record(scanner, &mut fields, &mut first)? {
        if edges.to.len() as u64 >= about.description.edge_count {
            return Err(scanner.malformed("more edges than it says"));
        }
        let kind = usize::try_from(fields[layout.kind])
            .ok()
            .and_then(|kind| layout.kinds.get(kind));
        let kind = kind.ok_or_else(|| scanner.malformed("an edge of an unknown type"))?;
        let to = fields[layout.to];
        if !to.is_multiple_of(width) {
            return Err(scanner.malformed("an edge leads into the middle of a node"));
        }
        edges.kind.push(*kind);
        edges.name.push(narrow(scanner, fields[layout.name])?);
        edges.to.push(narrow(scanner, to / width)?);
    }
    Ok(edges)
}

fn read_strings<R: Read>(scanner: &mut Scanner<R>, strings: &mut Strings) -> Result<(), HeapError> {
    let mut first = true;
    let mut text = Vec::new();
    scanner.expect(b'[', "strings is no array")?;
    while scanner.item(b']', &mut first)? {
        scanner.string(&mut text, STRING_BYTES)?;
        if !strings.push(&String::from_utf8_lossy(&text)) {
            return Err(scanner.malformed("its strings are too long"));
        }
    }
    Ok(())
}

/// What later code relies on: at least a root, as many edges as the nodes say, and each leads to a node.
fn check<R: Read>(scanner: &Scanner<R>, nodes: &Nodes, edges: &Edges) -> Result<(), HeapError> {
    if nodes.len() == ROOT {
        return Err(scanner.malformed("it has no node"));
    }
    if nodes.first_edge.last().copied().unwrap_or_default() as usize != edges.to.len() {
        return Err(scanner.malformed("its nodes have another number of edges than it lists"));
    }
    let count = nodes.len();
    if edges.to.iter().any(|to| *to >= count) {
        return Err(scanner.malformed("an edge leads to no node"));
    }
    Ok(())
}
