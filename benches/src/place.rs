//! Where programs run: all on loopback, or the server's side in a network namespace behind an emulated line.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

/// The near side is where this process runs; the far side may be another network namespace.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    programs: PathBuf,
    /// Name of the namespace, and the far side's address as both sides see it.
    far: Option<(String, IpAddr)>,
}

impl Place {
    /// Both sides on this machine's loopback. `programs` is the folder of the two halves.
    pub(crate) fn loopback(programs: &Path) -> Self {
        Self {
            programs: programs.to_owned(),
            far: None,
        }
    }

    /// The server's side in another network namespace, at `address`.
    pub(crate) fn apart(&self, namespace: &str, address: IpAddr) -> Self {
        Self {
            programs: self.programs.clone(),
            far: Some((namespace.to_owned(), address)),
        }
    }

    /// The folder of the two halves.
    pub(crate) fn programs(&self) -> &Path {
        &self.programs
    }

    /// A program of the product, near.
    pub(crate) fn near(&self, program: &str) -> Command {
        Command::new(self.programs.join(program))
    }

    /// A program of the product, far.
    pub(crate) fn far(&self, program: &str) -> Command {
        self.enter(&self.programs.join(program))
    }

    /// This program, far.
    pub(crate) fn far_self(&self) -> anyhow::Result<Command> {
        let program = std::env::current_exe().context("could not find this program")?;
        Ok(self.enter(&program))
    }

    /// Any program, far.
    pub(crate) fn enter(&self, program: &Path) -> Command {
        match &self.far {
            None => Command::new(program),
            Some((namespace, _)) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(program);
                command
            }
        }
    }

    /// The far side's address.
    pub(crate) fn far_address(&self) -> IpAddr {
        self.far
            .as_ref()
            .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |(_, address)| *address)
    }
}
