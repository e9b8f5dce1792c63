//! The sections of a run: each measures some rows of the table.

use crate::place::Place;
use crate::report::Report;
use crate::scale::Scale;

pub(crate) mod calm;
pub(crate) mod codec;
pub(crate) mod http;
pub(crate) mod memory;
pub(crate) mod recovery;
pub(crate) mod relay;
pub(crate) mod wan;

/// What sections run with.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Where programs run.
    pub(crate) place: Place,
    /// How much to measure.
    pub(crate) scale: Scale,
}

/// A part of a run that can be chosen by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it measures, for `--list`.
    pub(crate) about: &'static str,
    /// Measures it; its figures are those of its name, or of its name and a suffix.
    pub(crate) run: fn(&Setting, &mut Report) -> anyhow::Result<()>,
}

/// All sections, in the order in which they run.
pub(crate) const ALL: &[Section] = &[
    Section {
        name: relay::NAME,
        about: "CPU per byte, throughput, ping, opens; plaintext and TLS, beside direct TCP and ssh -D",
        run: relay::run,
    },
    Section {
        name: memory::NAME,
        about: "memory of an idle tunnel, and what is kept when 2,000 are closed",
        run: memory::run,
    },
    Section {
        name: http::NAME,
        about: "small requests through the HTTP proxy",
        run: http::run,
    },
    Section {
        name: calm::NAME,
        about: "opens after cancelled downloads; a ping beside a burst, a stalled reader, abandoned streams",
        run: calm::run,
    },
    Section {
        name: recovery::NAME,
        about: "time until tunnels open again: the server half restarted, a silent line back",
        run: recovery::run,
    },
    Section {
        name: wan::NAME,
        about: "a line of 50 ms and 100 Mbit/s between network namespaces, without and with 1 % loss",
        run: wan::run,
    },
    Section {
        name: codec::NAME,
        about: "instructions of the codecs, counted by valgrind",
        run: codec::run,
    },
];
