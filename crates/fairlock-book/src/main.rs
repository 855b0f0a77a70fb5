//! Builds the book and checks its links, or draws its pictures anew.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use fairlock_book::{build, pictures, rendered, repository};

const USAGE: &str = "\
cargo run -p fairlock-book -- FOLDER      builds the book into FOLDER, such as target/book, and follows its links
cargo run -p fairlock-book -- --pictures  draws the pictures in docs/src/images from the figures in docs/data";

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let outcome = match env::args_os().nth(1) {
        Some(argument) if argument == "--pictures" => draw(),
        Some(argument) if argument == "--help" => {
            println!("{USAGE}");
            Ok(())
        }
        Some(folder) => build_and_check(&PathBuf::from(folder)),
        None => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn draw() -> Outcome {
    let docs = repository().join("docs");
    for (path, picture) in pictures::draw(&docs)? {
        fs::write(docs.join(path), picture)?;
        println!("docs/{path}");
    }
    Ok(())
}

fn build_and_check(folder: &Path) -> Outcome {
    fs::create_dir_all(folder)?;
    build(folder)?;
    let links = rendered::check(folder)?;
    for link in &links.broken {
        eprintln!("a link that leads nowhere: {link}");
    }
    println!("{}: {} links followed", folder.join("index.html").display(), links.followed);
    match links.broken.len() {
        0 => Ok(()),
        broken => Err(format!("links that lead nowhere: {broken}").into()),
    }
}
