//! `fairlock install`: this command, and Fairlock for C and C++, where programs and compilers look.
//!
//! The compiled libraries are found beside this command. Cargo builds them with the command, as
//! dependencies, and leaves them in `deps/`; an installed command has them in `../lib`. Everything else is
//! in the command itself. Installed files refer to each other by relative paths, so a prefix can be moved.
//!
//! What was compiled is stripped of debug information, by the `strip` that came with the linker; without one it is
//! copied as it is. Symbols stay: `fairlock run` and the doctor tell the library's functions from the program's by them.

use std::env;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use clap::Args;
use clap_complete::Shell;
use fairlock_report::screen::{self, say, wrapped};

use crate::failure::Failure;
use crate::manual;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What programs look for that were linked to the shared library: as `fairlock-c/build.rs` says.
const SONAME: &str = "libfairlock.so.0";

/// Where it goes.
#[derive(Debug, Args)]
pub struct Install {
    /// Directory that gets bin, lib, include and share; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
    /// Keep the debug information of what was compiled, for packagers who split it off themselves
    #[arg(long)]
    unstripped: bool,
}

impl Install {
    /// Does it, and says what is where. `options` are those of the whole command, for its manual.
    pub fn run(&self, options: clap::Command) -> Result<(), Failure> {
        let command = env::current_exe().map_err(|error| {
            Failure::Run(format!("cannot tell where this command is ({error})"))
        })?;
        // All that is needed is there before the first file is written.
        let mut items = items(&command)?;
        items.extend(manual_items(options));
        let strips = !self.unstripped && can_strip();
        let mut said = String::new();
        for item in &items {
            let path = self.prefix.join(&item.path);
            item.content.place(&path, strips).map_err(|error| refused(&path, &error))?;
            if !item.path.starts_with(OTHER_PAGES) {
                said.push_str(&format!("{}\n", path.display()));
            }
        }
        let others = self.prefix.join(OTHER_PAGES);
        said.push_str(&format!("{}*.1\n", others.display()));
        if !strips && !self.unstripped {
            say("debug information is installed, too: there is no `strip` to remove it");
        }
        said.push_str(&how_to_link(&self.prefix));
        Ok(screen::print(&said)?)
    }
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "choose a directory that you may write to with --prefix, or run it as a user who may"
        }
        _ => "choose another directory with --prefix",
    };
    Failure::Run(format!("cannot write {} ({error}); {advice}", path.display()))
}

fn how_to_link(prefix: &Path) -> String {
    let prefix = prefix.display();
    let words = format!("to link with it, where {prefix}/lib is not searched anyway:");
    format!(
        "\n{}\n  \
        export PKG_CONFIG_PATH={prefix}/lib/pkgconfig\n  \
        export LD_LIBRARY_PATH={prefix}/lib\n  \
        cc program.c $(pkg-config --cflags --libs fairlock)\n",
        wrapped(&words, "  ", screen::columns(&io::stdout()))
    )
}

/// Man pages that are not listed one by one.
const OTHER_PAGES: &str = "share/man/man1/fairlock-";

/// Whether debug information can be removed.
fn can_strip() -> bool {
    let version = Command::new("strip").arg("--version").stdin(Stdio::null()).output();
    version.is_ok_and(|output| output.status.success())
}

/// One file of an installation.
struct Item {
    /// Below the prefix.
    path: String,
    content: Content,
}

enum Content {
    /// A file that is run.
    Program(PathBuf),
    /// A file that is read.
    File(PathBuf),
    Text(String),
    /// A name beside it.
    Link(String),
}

impl Content {
    /// Makes it appear at once: a program that uses what was there before goes on with that.
    fn place(&self, path: &Path, strips: bool) -> io::Result<()> {
        let folder = path.parent().expect("below the prefix");
        fs::create_dir_all(folder)?;
        let name = path.file_name().expect("a file").to_string_lossy();
        let new = folder.join(format!(".{name}.{}", process::id()));
        let placed = self.write(&new, strips).and_then(|()| fs::rename(&new, path));
        if placed.is_err() {
            // Whatever went wrong before is what is told.
            let _ = fs::remove_file(&new);
        }
        placed
    }

    fn write(&self, path: &Path, strips: bool) -> io::Result<()> {
        match self {
            Content::Program(source) => copy(source, path, 0o755, strips),
            Content::File(source) => copy(source, path, 0o644, strips),
            Content::Text(text) => {
                let mut file = File::create(path)?;
                file.set_permissions(Permissions::from_mode(0o644))?;
                file.write_all(text.as_bytes())
            }
            Content::Link(target) => symlink(target, path),
        }
    }
}

fn copy(source: &Path, path: &Path, mode: u32, strips: bool) -> io::Result<()> {
    // What it cannot strip is as good with debug information.
    if !(strips && strip(source, path)) {
        fs::copy(source, path)?;
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Writes what was compiled without its debug information; whether that worked.
fn strip(source: &Path, path: &Path) -> bool {
    let mut strip = Command::new("strip");
    strip.args(["--strip-debug", "-o"]).arg(path).arg(source).stdin(Stdio::null());
    strip.output().is_ok_and(|output| output.status.success())
}

/// Man pages, and scripts for shells where these look for them.
fn manual_items(options: clap::Command) -> Vec<Item> {
    let scripts = [
        (Shell::Bash, "share/bash-completion/completions/fairlock"),
        (Shell::Zsh, "share/zsh/site-functions/_fairlock"),
        (Shell::Fish, "share/fish/vendor_completions.d/fairlock.fish"),
    ];
    let scripts = scripts.map(|(shell, path)| {
        let script = manual::completions(options.clone(), shell);
        Item { path: path.to_owned(), content: Content::Text(script) }
    });
    let pages = manual::pages(options.clone()).into_iter().map(|(name, text)| Item {
        path: format!("share/man/man1/{name}"),
        content: Content::Text(text),
    });
    scripts.into_iter().chain(pages).collect()
}

/// A library as Cargo names it, and as it is installed.
struct Library {
    built: &'static str,
    installed: String,
}

impl Library {
    /// Where it is, for a command at this path.
    fn find(&self, command: &Path) -> Option<PathBuf> {
        self.candidates(command).into_iter().find(|path| path.is_file())
    }

    /// The newest is in `deps/`: beside the command it stays from when it was built by itself.
    fn candidates(&self, command: &Path) -> [PathBuf; 3] {
        let folder = command.parent().unwrap_or(Path::new("."));
        [
            folder.join("deps").join(self.built),
            folder.join(self.built),
            folder.join("../lib").join(&self.installed),
        ]
    }

    fn must_find(&self, command: &Path) -> Result<PathBuf, Failure> {
        self.find(command).ok_or_else(|| {
            let places = self.candidates(command).map(|path| path.display().to_string());
            Failure::Run(format!(
                "{} is not there (looked for {}); build it with the command, in Fairlock's sources: \
                cargo build --release",
                self.built,
                places.join(", ")
            ))
        })
    }
}

fn items(command: &Path) -> Result<Vec<Item>, Failure> {
    let item = |path: &str, content| Item { path: path.to_owned(), content };
    let shared =
        Library { built: "libfairlock_c.so", installed: format!("libfairlock.so.{VERSION}") };
    let archive = Library { built: "libfairlock_c.a", installed: "libfairlock.a".to_owned() };
    let preloaded =
        Library { built: "libfairlock_pthread.so", installed: "libfairlock_pthread.so".to_owned() };

    let mut items = vec![
        item("bin/fairlock", Content::Program(command.to_owned())),
        item(&format!("lib/{}", shared.installed), Content::Program(shared.must_find(command)?)),
        item(&format!("lib/{SONAME}"), Content::Link(shared.installed.clone())),
        item("lib/libfairlock.so", Content::Link(SONAME.to_owned())),
        item("lib/libfairlock.a", Content::File(archive.must_find(command)?)),
    ];
    // Programs can be linked without it.
    if let Some(preloaded) = preloaded.find(command) {
        items.push(item("lib/libfairlock_pthread.so", Content::Program(preloaded)));
    }
    let texts = [
        ("include/fairlock.h", include_str!("../../fairlock-c/include/fairlock.h")),
        ("include/fairlock.hpp", include_str!("../../fairlock-c/include/fairlock.hpp")),
        ("share/fairlock/valgrind.supp", include_str!("../../fairlock-c/valgrind.supp")),
        ("lib/pkgconfig/fairlock.pc", include_str!("install/fairlock.pc")),
        ("lib/cmake/fairlock/fairlock-config.cmake", include_str!("install/config.cmake")),
        ("lib/cmake/fairlock/fairlock-config-version.cmake", include_str!("install/version.cmake")),
    ];
    items.extend(
        texts.map(|(path, text)| item(path, Content::Text(text.replace("@VERSION@", VERSION)))),
    );
    Ok(items)
}
