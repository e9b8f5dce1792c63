//! Installs what is missing: Chromium for everybody; for tests also the servers, clients and npm
//! packages that the end-to-end tests run.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
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
    /// What its package would run on this machine from then on.
    services: &'static [&'static str],
}

const NEEDS: &[Need] = &[
    Need {
        program: "chromium",
        package: "chromium",
        tests_only: false,
        services: &[],
    },
    Need {
        program: "curl",
        package: "curl",
        tests_only: true,
        services: &[],
    },
    Need {
        program: "nc",
        package: "netcat-openbsd",
        tests_only: true,
        services: &[],
    },
    Need {
        program: "nginx",
        package: "nginx-light",
        tests_only: true,
        services: &["nginx.service"],
    },
    Need {
        program: "haproxy",
        package: "haproxy",
        tests_only: true,
        services: &["haproxy.service"],
    },
    Need {
        program: "apache2",
        package: "apache2-bin",
        tests_only: true,
        services: &[],
    },
    Need {
        program: "caddy",
        package: "caddy",
        tests_only: true,
        services: &["caddy.service"],
    },
    Need {
        program: "lighttpd",
        package: "lighttpd",
        tests_only: true,
        services: &["lighttpd.service"],
    },
    Need {
        program: "varnishd",
        package: "varnish",
        tests_only: true,
        services: &["varnish.service", "varnishncsa.service"],
    },
    Need {
        program: "redis-server",
        package: "redis-server",
        tests_only: true,
        services: &["redis-server.service"],
    },
    Need {
        program: "redis-cli",
        package: "redis-tools",
        tests_only: true,
        services: &[],
    },
    Need {
        program: "node",
        package: "nodejs",
        tests_only: true,
        services: &[],
    },
    Need {
        program: "npm",
        package: "npm",
        tests_only: true,
        services: &[],
    },
    Need {
        program: "Xvfb",
        package: "xvfb",
        tests_only: true,
        services: &[],
    },
    Need {
        program: "ssh",
        package: "openssh-client",
        tests_only: true,
        services: &[],
    },
    Need {
        program: "sshd",
        package: "openssh-server",
        tests_only: true,
        services: &["ssh.service", "ssh.socket"],
    },
    Need {
        program: "cc",
        package: "gcc",
        tests_only: true,
        services: &[],
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
    let missing: Vec<&Need> = NEEDS
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

fn install_packages(missing: &[&Need]) -> anyhow::Result<()> {
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
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
    run(&mut apt(root, &["update", "-qq"]))?;
    let mut arguments = vec!["install", "-y", "-qq", "--no-install-recommends"];
    arguments.extend(packages);
    let quiet = QuietServices::begin(root)?;
    let installed = run(&mut apt(root, &arguments));
    drop(quiet);
    installed?;
    let services: Vec<&str> = missing
        .iter()
        .flat_map(|need| need.services)
        .copied()
        .collect();
    if exists("systemctl") && !services.is_empty() {
        // Tests start the programs themselves; as services they would hold ports 80 and 6379 from the next start on.
        run(privileged(root, "systemctl")
            .args(["disable", "--quiet"])
            .args(services))?;
    }
    Ok(())
}

/// `program` with all privileges.
fn privileged(root: bool, program: &str) -> Command {
    if root {
        Command::new(program)
    } else {
        let mut sudo = Command::new("sudo");
        sudo.arg(program);
        sudo
    }
}

fn apt(root: bool, arguments: &[&str]) -> Command {
    let mut command = if root {
        Command::new("apt-get")
    } else {
        // sudo drops the environment; `env` sets this on its far side.
        let mut sudo = Command::new("sudo");
        sudo.args(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        sudo
    };
    command
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// While it lives, packages that are installed do not start their services: several want port 80, and one that does
/// not get it fails its installation. A policy that the machine has already stays as it is.
struct QuietServices {
    root: bool,
    /// Whether the policy is ours to remove.
    ours: bool,
}

impl QuietServices {
    /// What Debian's packages ask before they start a service; 101 says no.
    const POLICY: &str = "/usr/sbin/policy-rc.d";

    fn begin(root: bool) -> anyhow::Result<Self> {
        let ours = !Path::new(Self::POLICY).exists();
        if ours {
            let folder = workspace().join("target/xtask");
            std::fs::create_dir_all(&folder)
                .with_context(|| format!("could not create {}", folder.display()))?;
            let policy = folder.join("policy-rc.d");
            std::fs::write(&policy, "#!/bin/sh\nexit 101\n")
                .with_context(|| format!("could not write {}", policy.display()))?;
            run(privileged(root, "install")
                .args(["-m", "755"])
                .arg(&policy)
                .arg(Self::POLICY))?;
        }
        Ok(Self { root, ours })
    }
}

impl Drop for QuietServices {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = run(privileged(self.root, "rm").args(["-f", Self::POLICY]))
        {
            eprintln!("{error:#}; remove {} yourself", Self::POLICY);
        }
    }
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
