//! `fairlock install`: this command, and Fairlock for C and C++, where programs and compilers look.
//!
//! The compiled libraries are found beside this command. Cargo builds them with the command, as
//! dependencies, and leaves them in `deps/`; an installed command has them in `../lib`. Everything else is
//! in the command itself. Installed files refer to each other by relative paths, so a prefix can be moved.

use std::env;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process;

use clap::Args;
use fairlock_report::screen::{self, wrapped};

use crate::failure::Failure;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What programs look for that were linked to the shared library: as `fairlock-c/build.rs` says.
const SONAME: &str = "libfairlock.so.0";

/// Where it goes.
#[derive(Debug, Args)]
pub struct Install {
    /// Directory that gets bin, lib, include and share; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
}

impl Install {
    /// Does it, and says what is where.
    pub fn run(&self) -> Result<(), Failure> {
        let command = env::current_exe().map_err(|error| {
            Failure::Run(format!("cannot tell where this command is ({error})"))
        })?;
        // All that is needed is there before the first file is written.
        let items = items(&command)?;
        let mut said = String::new();
        for item in &items {
            let path = self.prefix.join(&item.path);
            item.content.place(&path).map_err(|error| refused(&path, &error))?;
            said.push_str(&format!("{}\n", path.display()));
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
    fn place(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().expect("below the prefix");
        fs::create_dir_all(folder)?;
        let name = path.file_name().expect("a file").to_string_lossy();
        let new = folder.join(format!(".{name}.{}", process::id()));
        let placed = self.write(&new).and_then(|()| fs::rename(&new, path));
        if placed.is_err() {
            // Whatever went wrong before is what is told.
            let _ = fs::remove_file(&new);
        }
        placed
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        match self {
            Content::Program(source) => copy(source, path, 0o755),
            Content::File(source) => copy(source, path, 0o644),
            Content::Text(text) => {
                let mut file = File::create(path)?;
                file.set_permissions(Permissions::from_mode(0o644))?;
                file.write_all(text.as_bytes())
            }
            Content::Link(target) => symlink(target, path),
        }
    }
}

fn copy(source: &Path, path: &Path, mode: u32) -> io::Result<()> {
    fs::copy(source, path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
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
