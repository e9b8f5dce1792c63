//! Installs what is missing: Chromium for everybody; for tests also the servers, clients and npm
//! packages that the end-to-end tests run.

use std::io::{IsTerminal as _, Write as _};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::process::{cargo, exists, run, workspace};

/// For what to install.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scope {
    /// The demo: a browser.
    Demo,
    /// The demo and the tests.
    Everything,
}

/// A program, and the Debian package that has it.
struct Need {
    program: &'static str,
    package: &'static str,
    tests_only: bool,
}

const NEEDS: &[Need] = &[
    Need {
        program: "chromium",
        package: "chromium",
        tests_only: false,
    },
    Need {
        program: "curl",
        package: "curl",
        tests_only: true,
    },
    Need {
        program: "nc",
        package: "netcat-openbsd",
        tests_only: true,
    },
    Need {
        program: "nginx",
        package: "nginx-light",
        tests_only: true,
    },
    Need {
        program: "redis-server",
        package: "redis-server",
        tests_only: true,
    },
    Need {
        program: "redis-cli",
        package: "redis-tools",
        tests_only: true,
    },
    Need {
        program: "node",
        package: "nodejs",
        tests_only: true,
    },
    Need {
        program: "npm",
        package: "npm",
        tests_only: true,
    },
    Need {
        program: "Xvfb",
        package: "xvfb",
        tests_only: true,
    },
    Need {
        program: "cc",
        package: "gcc",
        tests_only: true,
    },
];

/// Other browsers that serve as well as Debian's.
const BROWSERS: &[&str] = &[
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Installs what `scope` needs and this machine lacks; quick when nothing is missing.
pub(crate) fn ensure(scope: Scope) -> anyhow::Result<()> {
    let missing: Vec<&str> = NEEDS
        .iter()
        .filter(|need| scope == Scope::Everything || !need.tests_only)
        .filter(|need| {
            let names: &[&str] = if need.program == "chromium" {
                BROWSERS
            } else {
                std::slice::from_ref(&need.program)
            };
            !names.iter().any(|name| exists(name))
        })
        .map(|need| need.package)
        .collect();
    if !missing.is_empty() {
        install_packages(&missing)?;
    }
    if scope == Scope::Everything {
        if !exists("cargo-nextest") {
            run(cargo().args(["install", "--locked", "cargo-nextest"]))?;
        }
        install_npm_packages()?;
    }
    Ok(())
}

/// `cargo xtask setup`.
pub(crate) fn run_all() -> anyhow::Result<()> {
    ensure(Scope::Everything)?;
    eprintln!("everything is installed");
    Ok(())
}

fn install_packages(packages: &[&str]) -> anyhow::Result<()> {
    let list = packages.join(" ");
    if !exists("apt-get") {
        bail!(
            "these programs are missing: {list}; install them with your system's package manager"
        );
    }
    let root = is_root()?;
    if std::io::stdin().is_terminal() {
        let how = if root { "" } else { " with sudo" };
        eprint!("Install the Debian packages {list}{how}? [y/N] ");
        std::io::stderr().flush()?;
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            bail!("these packages are needed: {list}");
        }
    } else if !root {
        bail!("these packages are needed: run `sudo apt-get install {list}` once");
    }
    let apt = |arguments: &[&str]| {
        let mut command = if root {
            Command::new("apt-get")
        } else {
            let mut sudo = Command::new("sudo");
            sudo.arg("apt-get");
            sudo
        };
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    run(&mut apt(&["update", "-qq"]))?;
    let mut arguments = vec!["install", "-y", "-qq", "--no-install-recommends"];
    arguments.extend(packages);
    run(&mut apt(&arguments))
}

/// Whether we run with all privileges.
pub(crate) fn is_root() -> anyhow::Result<bool> {
    let output = Command::new("id")
        .arg("-u")
        .output()
        .context("could not run `id -u`")?;
    Ok(output.stdout.trim_ascii() == b"0")
}

/// Installs the pinned packages unless the installed set is the locked one already.
fn install_npm_packages() -> anyhow::Result<()> {
    let folder = workspace().join("tests/npm");
    let locked = std::fs::read(folder.join("package-lock.json"))
        .context("could not read tests/npm/package-lock.json")?;
    let mark = folder.join("node_modules/.installed-lock.json");
    if std::fs::read(&mark).is_ok_and(|installed| installed == locked) {
        return Ok(());
    }
    run(Command::new("npm").arg("ci").current_dir(&folder))?;
    std::fs::write(&mark, locked).with_context(|| format!("could not write {}", mark.display()))
}
