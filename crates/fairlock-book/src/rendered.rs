//! Links in a folder of rendered pages: each has to lead to a file in that folder, and to something there
//! that has the name behind its `#`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{
    BufferQueue, Tag, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};

/// What was found in a folder of pages.
#[derive(Debug, Default)]
pub struct Links {
    /// How many links within the folder were followed.
    pub followed: usize,
    /// `page: link`, for each that leads nowhere.
    pub broken: Vec<String>,
}

/// The names and the links of one page.
#[derive(Default)]
struct Page {
    names: BTreeSet<String>,
    links: Vec<String>,
}

#[derive(Default)]
struct Collector(RefCell<Page>);

impl TokenSink for Collector {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        if let Token::TagToken(Tag { attrs, .. }) = token {
            let mut page = self.0.borrow_mut();
            for attribute in attrs {
                let value = attribute.value.to_string();
                match &*attribute.name.local {
                    "id" | "name" => _ = page.names.insert(value),
                    "href" | "src" => page.links.push(value),
                    _ => {}
                }
            }
        }
        TokenSinkResult::Continue
    }
}

fn parse(html: &str) -> Page {
    let tokenizer = Tokenizer::new(Collector::default(), TokenizerOpts::default());
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(html));
    _ = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink.0.into_inner()
}

/// Follows every link between the pages in `folder`.
///
/// # Errors
/// A file or folder cannot be read.
pub fn check(folder: &Path) -> io::Result<Links> {
    let mut pages = BTreeMap::new();
    let mut files = BTreeSet::new();
    collect(folder, Path::new(""), &mut pages, &mut files)?;
    let mut result = Links::default();
    for (path, page) in &pages {
        for link in &page.links {
            let Some((file, name)) = target(path, link) else {
                continue;
            };
            result.followed += 1;
            let has_name = |page: &Page| page.names.contains(&name);
            if !files.contains(&file)
                || !(name.is_empty() || pages.get(&file).is_some_and(has_name))
            {
                result.broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    Ok(result)
}

fn collect(
    root: &Path,
    below: &Path,
    pages: &mut BTreeMap<PathBuf, Page>,
    files: &mut BTreeSet<PathBuf>,
) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(root, &path, pages, files)?;
            continue;
        }
        if path.extension().is_some_and(|extension| extension == "html") {
            pages.insert(path.clone(), parse(&fs::read_to_string(entry.path())?));
        }
        files.insert(path);
    }
    Ok(())
}

/// The file and the name that a link of `page` leads to; none if that is on another site.
fn target(page: &Path, link: &str) -> Option<(PathBuf, String)> {
    if link.contains("://") || link.starts_with("mailto:") || link.starts_with("data:") {
        return None;
    }
    let (path, name) = link.split_once('#').unwrap_or((link, ""));
    let mut file = page.to_path_buf();
    if !path.is_empty() {
        file = match path.strip_prefix('/') {
            Some(from_root) => PathBuf::from(from_root),
            None => page.parent().unwrap_or(Path::new("")).join(path),
        };
    }
    let mut normal = PathBuf::new();
    for component in file.components() {
        match component {
            // One that leads out of the folder stays, and so is no file of it.
            Component::ParentDir if normal.file_name().is_some() => _ = normal.pop(),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    if path.ends_with('/') {
        normal.push("index.html");
    }
    Some((normal, name.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(pages: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder for the pages");
        for (path, html) in pages {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
            fs::write(path, html).expect("it can be written");
        }
        check(folder.path()).expect("readable pages").broken
    }

    #[test]
    fn links_to_files_and_names_that_exist_are_whole() {
        let pages = [
            ("a.html", r##"<a href="use/b.html#x">b</a> <a href="#here" id="here">here</a>"##),
            ("use/b.html", r#"<h2 id="x">x</h2> <a href="../a.html">a</a> <img src="../c.svg">"#),
            ("404.html", r#"<base href="/">"#),
            ("index.html", ""),
            ("c.svg", "<svg/>"),
        ];
        assert!(broken(&pages).is_empty());
    }

    #[test]
    fn links_to_files_or_names_that_do_not_exist_are_broken() {
        let pages = [
            ("a.html", r#"<a href="b.html">b</a> <a href="c.html#x">c</a> <img src="d.svg">"#),
            ("c.html", r#"<a href="../../README.md">outside</a>"#),
        ];
        let expected =
            ["a.html: b.html", "a.html: c.html#x", "a.html: d.svg", "c.html: ../../README.md"];
        assert_eq!(broken(&pages), expected);
    }

    #[test]
    fn other_sites_and_what_only_looks_like_a_link_are_left_alone() {
        let page = r#"<a href="https://example.org/x">x</a> <!-- <a href="y.html"> --> &lt;a href="z.html"&gt;"#;
        assert!(broken(&[("a.html", page)]).is_empty());
    }
}
