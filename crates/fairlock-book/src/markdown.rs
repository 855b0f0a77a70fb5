//! Links of Markdown files that are no pages of the book, such as the README, as GitHub follows them.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// What one file refers to, and the names of its headings.
#[derive(Default)]
struct File {
    links: Vec<String>,
    headings: BTreeSet<String>,
}

fn parse(text: &str) -> File {
    let mut file = File::default();
    let mut heading = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                file.links.push(dest_url.to_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                file.headings.extend(heading.take().map(|text| anchor(&text)));
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }
    file
}

/// As GitHub and mdBook name a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The links of a Markdown file that lead to other files.
///
/// # Errors
/// The file cannot be read.
pub fn relative_links(path: &Path) -> io::Result<Vec<String>> {
    let mut links = parse(&fs::read_to_string(path)?).links;
    links.retain(|link| !link.contains("://") && !link.starts_with('#'));
    Ok(links)
}

/// The links of a Markdown file that lead to no file, or to no heading of it.
///
/// # Errors
/// The file, or one that it links to, cannot be read.
pub fn broken_links(path: &Path) -> io::Result<Vec<String>> {
    let this = parse(&fs::read_to_string(path)?);
    let mut broken = Vec::new();
    for link in this.links.iter().filter(|link| !link.contains("://")) {
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let to = if file.is_empty() { path.to_path_buf() } else { path.with_file_name(file) };
        let is_whole = to.exists()
            && (heading.is_empty() || parse(&fs::read_to_string(&to)?).headings.contains(heading));
        if !is_whole {
            broken.push(link.clone());
        }
    }
    Ok(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_needs_its_file_and_its_heading() {
        let folder = tempfile::tempdir().expect("a folder for the files");
        let path = folder.path().join("a.md");
        let text = "# Two words: `code`\n[b](b.md) [c](c.md) [x](b.md#x) [y](b.md#y) \
                    [own](#two-words-code) [site](https://example.org)\n```\n[no](link.md)\n```\n";
        fs::write(&path, text).expect("it can be written");
        fs::write(folder.path().join("b.md"), "## X\n").expect("it can be written");
        assert_eq!(broken_links(&path).expect("readable files"), ["c.md", "b.md#y"]);
    }
}
