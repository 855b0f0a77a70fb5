//! Builds the book and checks its links: `cargo run -p fairlock-book -- target/book`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

use fairlock_book::{build, rendered};

fn main() -> ExitCode {
    let Some(folder) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("error: no folder to build the book into; for example target/book");
        return ExitCode::from(2);
    };
    let built = fs::create_dir_all(&folder).map_err(Into::into).and_then(|()| build(&folder));
    if let Err(error) = built {
        eprintln!("error: {error:#}");
        return ExitCode::FAILURE;
    }
    let links = match rendered::check(&folder) {
        Ok(links) => links,
        Err(error) => {
            eprintln!("error: cannot read {}: {error}", folder.display());
            return ExitCode::FAILURE;
        }
    };
    for link in &links.broken {
        eprintln!("error: a link that leads nowhere: {link}");
    }
    println!("{}, {} links followed", folder.join("index.html").display(), links.followed);
    if links.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
