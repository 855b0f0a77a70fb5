//! Draws the book's pictures anew: those in `docs/src/images` that are made of the figures in `docs/data`.

use std::{fs, io};

use fairlock_book::{pictures, repository};

fn main() -> io::Result<()> {
    let docs = repository().join("docs");
    for (path, picture) in pictures::draw(&docs)? {
        fs::write(docs.join(path), picture)?;
        println!("docs/{path}");
    }
    Ok(())
}
