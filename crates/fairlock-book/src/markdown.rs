//! Links of Markdown files, as mdBook follows them between the book's pages and GitHub between all other files.
//!
//! Not for: links to other sites.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd};

use crate::repository;

/// What shows a Markdown file to its readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// mdBook has only what is below `docs/src`, and names a heading as its `{#name}` says.
    Book,
    /// GitHub has the whole repository.
    GitHub,
}

impl Site {
    /// The folder of everything that the site has.
    pub fn root(self) -> PathBuf {
        match self {
            Site::Book => repository().join("docs/src"),
            Site::GitHub => repository(),
        }
    }

    fn options(self) -> Options {
        let common = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
        match self {
            Site::Book => common | Options::ENABLE_HEADING_ATTRIBUTES,
            Site::GitHub => common,
        }
    }
}

/// What one file refers to, and the names of its headings.
#[derive(Default)]
struct File {
    links: Vec<String>,
    names: BTreeSet<String>,
}

fn parse(text: &str, site: Site) -> File {
    let mut file = File::default();
    // The name that a heading has been given, and its text.
    let mut heading: Option<(Option<CowStr<'_>>, String)> = None;
    let mut repeated: BTreeMap<String, usize> = BTreeMap::new();
    for event in Parser::new_ext(text, site.options()) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                file.links.push(dest_url.to_string());
            }
            Event::Start(Tag::Heading { id, .. }) => heading = Some((id, String::new())),
            Event::End(TagEnd::Heading(_)) => {
                let Some((given, text)) = heading.take() else { continue };
                let name = given.map_or_else(|| anchor(&text), |given| given.to_string());
                let before = repeated.entry(name.clone()).or_default();
                file.names.insert(match *before {
                    0 => name,
                    before => format!("{name}-{before}"),
                });
                *before += 1;
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some((_, heading)) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                file.links.extend(attributes(&html, &[" href=\"", " src=\""]));
                file.names.extend(attributes(&html, &[" id=\"", " name=\""]));
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

/// The values of these attributes in a piece of HTML.
fn attributes(html: &str, names: &[&str]) -> Vec<String> {
    let values = names.iter().flat_map(|name| html.split(name).skip(1));
    values.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
}

fn is_on_another_site(link: &str) -> bool {
    link.contains("://") || link.starts_with("mailto:")
}

/// The links of a Markdown file that lead to other files.
///
/// # Errors
/// The file cannot be read.
pub fn relative_links(path: &Path) -> io::Result<Vec<String>> {
    let mut links = parse(&fs::read_to_string(path)?, Site::GitHub).links;
    links.retain(|link| !is_on_another_site(link) && !link.starts_with('#'));
    Ok(links)
}

/// What was found in a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// How many links lead to the site's own files.
    pub followed: usize,
    /// Those among them that lead to no file, out of the site, or to no heading.
    pub broken: Vec<String>,
}

/// Follows the links and pictures of a Markdown file on a site.
///
/// # Errors
/// The file, or one that it links to, cannot be read.
pub fn follow(path: &Path, site: Site) -> io::Result<Links> {
    follow_within(&site.root(), path, site)
}

fn follow_within(root: &Path, path: &Path, site: Site) -> io::Result<Links> {
    let root = root.canonicalize()?;
    let mut found = Links::default();
    for link in parse(&fs::read_to_string(path)?, site).links {
        if is_on_another_site(&link) {
            continue;
        }
        found.followed += 1;
        let (file, name) = link.split_once('#').unwrap_or((&link, ""));
        let to = if file.is_empty() { path.to_path_buf() } else { path.with_file_name(file) };
        let is_on_site = to.canonicalize().is_ok_and(|to| to.starts_with(&root));
        // mdBook makes no page of its table of contents, and takes a link to a folder for one to a file.
        let is_shown = site == Site::GitHub || to.is_file() && !to.ends_with("SUMMARY.md");
        let is_whole = is_on_site
            && is_shown
            && (name.is_empty() || parse(&fs::read_to_string(&to)?, site).names.contains(name));
        if !is_whole {
            found.broken.push(link);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The broken links of `a.md`, next to `b.md`, in a folder of its own below the site's root.
    fn broken(a: &str, b: &str, site: Site) -> Vec<String> {
        let root = tempfile::tempdir().expect("a folder for the files");
        let folder = root.path().join("part");
        fs::create_dir(&folder).expect("it can be made");
        let path = folder.join("a.md");
        fs::write(&path, a).expect("it can be written");
        fs::write(folder.join("b.md"), b).expect("it can be written");
        fs::write(folder.join("SUMMARY.md"), "").expect("it can be written");
        follow_within(root.path(), &path, site).expect("readable files").broken
    }

    #[test]
    fn a_link_needs_its_file_and_its_heading() {
        let text = "# Two words: `code`\n[b](b.md) [c](c.md) [x](b.md#x) [y](b.md#y) ![d](d.svg) \
                    [own](#two-words-code) [site](https://example.org)\n```\n[no](link.md)\n```\n";
        for site in [Site::Book, Site::GitHub] {
            assert_eq!(broken(text, "## X\n", site), ["c.md", "b.md#y", "d.svg"]);
        }
    }

    #[test]
    fn the_second_heading_of_a_name_has_a_number() {
        let text = "[1](b.md#x) [2](b.md#x-1) [3](b.md#x-2)\n";
        assert_eq!(broken(text, "# X\n# X\n", Site::Book), ["b.md#x-2"]);
    }

    #[test]
    fn a_heading_of_the_book_has_the_name_that_it_is_given() {
        let text = "[given](b.md#own) [not](b.md#x)\n";
        assert_eq!(broken(text, "# X {#own}\n", Site::Book), ["b.md#x"]);
    }

    #[test]
    fn links_and_names_in_html_count() {
        let text = "<a href=\"b.md#here\">b</a> <img src=\"c.svg\">\n";
        assert_eq!(broken(text, "<a id=\"here\"></a>\n", Site::GitHub), ["c.svg"]);
    }

    #[test]
    fn nothing_outside_is_on_the_site() {
        let text = "[manifest](/etc/passwd) [up](../../x.md) [root](..)\n";
        assert_eq!(broken(text, "", Site::GitHub), ["/etc/passwd", "../../x.md"]);
    }

    #[test]
    fn the_book_has_no_page_for_its_summary_or_for_a_folder() {
        let text = "[summary](SUMMARY.md) [folder](../part)\n";
        assert_eq!(broken(text, "", Site::Book), ["SUMMARY.md", "../part"]);
        assert!(broken(text, "", Site::GitHub).is_empty());
    }
}
