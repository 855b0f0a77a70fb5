//! Machine files as they stand: figures with their sources, read and written. What the figures
//! mean together is checked in `machine.rs`.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use toml::{Table, Value};

use super::schema::{KEYS, Key, Kind};

/// Where a figure comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A key of the file's sources.
    From(String),
    /// Nobody published it: why this value.
    Assumed(String),
}

/// A figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Its key, one of [`KEYS`]; the figures of a list share theirs.
    pub key: &'static Key,
    /// The value with its unit, as in the file.
    pub amount: Table,
    /// Where it comes from.
    pub origin: Origin,
    /// What a reader should know beside that; may be empty.
    pub note: String,
}

/// A machine file.
#[derive(Debug, Clone, PartialEq)]
pub struct Sheet {
    /// The machine's name on the command line.
    pub name: String,
    /// The file, for messages.
    pub file: String,
    /// What the machine is, in a line.
    pub title: String,
    /// What a reader should know about the figures; may be empty.
    pub about: String,
    /// What the figures refer to as `from`.
    pub sources: BTreeMap<String, String>,
    /// The figures, in the order of [`KEYS`].
    pub figures: Vec<Figure>,
}

/// A machine file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileError {
    /// The file; empty where none was found.
    pub file: String,
    /// What is wrong in it, with the key, the value and what would be valid.
    pub reason: String,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file.as_str() {
            "" => f.write_str(&self.reason),
            file => write!(f, "{file}: {}", self.reason),
        }
    }
}

impl std::error::Error for ProfileError {}

impl Key {
    /// The key called `name`.
    ///
    /// # Panics
    /// If there is none: names are spelled in this program.
    pub fn named(name: &str) -> &'static Key {
        match KEYS.iter().find(|key| key.name == name) {
            Some(key) => key,
            None => panic!("{name} is no key of machine files"),
        }
    }
}

impl Figure {
    /// The figure as in the file, without its origin: `cy = 341, at_ghz = 2.13`.
    pub fn shown(&self) -> String {
        // As people would write them: the value before its conditions.
        let rank = |unit: &str| match unit {
            "at_ghz" | "p50_us" | "kib_ns" => 1,
            "p99_us" | "sigma" => 2,
            _ => 0,
        };
        let mut parts: Vec<(&String, &Value)> = self.amount.iter().collect();
        parts.sort_by_key(|(unit, _)| rank(unit));
        let parts: Vec<String> =
            parts.iter().map(|(unit, value)| format!("{unit} = {}", plain(value))).collect();
        parts.join(", ")
    }

    fn written(&self) -> String {
        let (word, text) = match &self.origin {
            Origin::From(source) => ("from", source),
            Origin::Assumed(reason) => ("assumed", reason),
        };
        let mut line = format!("{{ {}, {word} = {}", self.shown(), quoted(text));
        if !self.note.is_empty() {
            let _ = write!(line, ", note = {}", quoted(&self.note));
        }
        line + " }"
    }
}

/// A value as TOML; a float that is whole without its `.0`.
fn plain(value: &Value) -> String {
    match value {
        Value::Float(float) if float.fract() == 0.0 && float.abs() < 1e15 => format!("{float:.0}"),
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

impl Sheet {
    /// Reads the text of `file`.
    ///
    /// # Errors
    /// A line that is no TOML; a key that is missing, unknown or holds something impossible.
    pub fn parse(name: &str, file: &str, text: &str) -> Result<Sheet, ProfileError> {
        let reader = Reader { file };
        let mut root: Table = text.parse().map_err(|error: toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start);
            let line = text[..start.min(text.len())].lines().count().max(1);
            reader.error(format!("line {line}: {}", error.message().replace('\n', " ")))
        })?;
        let title = reader.text(&mut root, "title")?.ok_or_else(|| {
            reader.error("`title` is missing; say what the machine is: title = \"2 × 10 cores\"")
        })?;
        let about = reader.text(&mut root, "about")?.unwrap_or_default();
        let mut sources = BTreeMap::new();
        for (key, value) in reader.table(&mut root, "sources")? {
            let text = value.as_str().filter(|text| !text.trim().is_empty());
            let text = text.ok_or_else(|| {
                reader.wrong(&format!("sources.{key}"), &value, "a citation in quotes")
            })?;
            sources.insert(key, text.to_owned());
        }

        let mut figures = Vec::new();
        let mut sections: Vec<&str> =
            KEYS.iter().filter_map(|key| key.name.split('.').next()).collect();
        sections.dedup();
        for section in &sections {
            let mut table = reader.table(&mut root, section)?;
            for key in KEYS.iter().filter(|key| key.section() == *section) {
                let Some(value) = table.remove(key.short()) else { continue };
                if !key.kind.is_list() {
                    figures.push(reader.figure(key, key.name, &value, &sources)?);
                    continue;
                }
                let list = value.as_array().filter(|list| !list.is_empty());
                let list = list.ok_or_else(|| reader.wrong(key.name, &value, &key.kind.valid()))?;
                for (index, value) in list.iter().enumerate() {
                    let name = format!("{}[{index}]", key.name);
                    figures.push(reader.figure(key, &name, value, &sources)?);
                }
            }
            if let Some(unknown) = table.keys().next() {
                let known: Vec<&str> = KEYS
                    .iter()
                    .filter(|key| key.section() == *section)
                    .map(|key| key.short())
                    .collect();
                return Err(reader.error(format!(
                    "`{section}.{unknown}` is unknown; the keys there are: {}",
                    known.join(", ")
                )));
            }
        }
        if let Some(unknown) = root.keys().next() {
            return Err(reader.error(format!(
                "`{unknown}` is unknown; the keys are: title, about, and the sections sources, {}",
                sections.join(", ")
            )));
        }
        Ok(Sheet { name: name.to_owned(), file: file.to_owned(), title, about, sources, figures })
    }

    /// The file's text. Reading it gives the same sheet.
    pub fn write(&self) -> String {
        let mut text = format!("title = {}\n", quoted(&self.title));
        if !self.about.is_empty() {
            let _ = writeln!(text, "about = {}", quoted(&self.about));
        }
        text.push_str("\n[sources]\n");
        for (key, citation) in &self.sources {
            let _ = writeln!(text, "{key} = {}", quoted(citation));
        }
        let mut section = "";
        for key in &KEYS {
            let mut figures = self.figures.iter().filter(|figure| figure.key.name == key.name);
            let Some(first) = figures.next() else { continue };
            if section != key.section() {
                section = key.section();
                let _ = writeln!(text, "\n[{section}]");
            }
            if key.kind.is_list() {
                let _ = writeln!(text, "{} = [\n  {},", key.short(), first.written());
                for figure in figures {
                    let _ = writeln!(text, "  {},", figure.written());
                }
                text.push_str("]\n");
            } else {
                let _ = writeln!(text, "{} = {}", key.short(), first.written());
            }
        }
        text
    }

    /// The citation, or the reason of the assumption.
    pub fn origin<'a>(&'a self, figure: &'a Figure) -> &'a str {
        match &figure.origin {
            Origin::From(source) => self.sources.get(source).map_or(source, |text| text),
            Origin::Assumed(reason) => reason,
        }
    }
}

impl Key {
    fn section(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(section, _)| section)
    }

    fn short(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(_, short)| short)
    }
}

/// Takes a file apart.
struct Reader<'a> {
    file: &'a str,
}

impl Reader<'_> {
    fn error(&self, reason: impl Into<String>) -> ProfileError {
        ProfileError { file: self.file.to_owned(), reason: reason.into() }
    }

    fn wrong(&self, key: &str, value: &Value, valid: &str) -> ProfileError {
        self.error(format!("`{key}` is {}; give {valid}", plain(value)))
    }

    /// Takes a text that is not empty.
    fn text(&self, table: &mut Table, key: &str) -> Result<Option<String>, ProfileError> {
        match table.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, &other, "a text in quotes")),
        }
    }

    /// Takes a section; a missing one is empty.
    fn table(&self, root: &mut Table, key: &str) -> Result<Table, ProfileError> {
        match root.remove(key) {
            None => Ok(Table::new()),
            Some(Value::Table(table)) => Ok(table),
            Some(other) => Err(self.wrong(key, &other, &format!("a section: [{key}]"))),
        }
    }

    fn figure(
        &self,
        key: &'static Key,
        name: &str,
        value: &Value,
        sources: &BTreeMap<String, String>,
    ) -> Result<Figure, ProfileError> {
        let valid = match key.kind {
            // One of the list.
            Kind::Times => Kind::Time.valid(),
            kind => kind.valid(),
        };
        let Some(mut amount) = value.as_table().cloned() else {
            return Err(self.wrong(name, value, &format!("{valid}, with from or assumed")));
        };
        let from = self.text(&mut amount, "from");
        let assumed = self.text(&mut amount, "assumed");
        let note = self.text(&mut amount, "note");
        let (Ok(from), Ok(assumed), Ok(note)) = (from, assumed, note) else {
            return Err(self.wrong(name, value, "from, assumed and note as texts in quotes"));
        };
        let origin = match (from, assumed) {
            (Some(source), None) if sources.contains_key(&source) => Origin::From(source),
            (Some(source), None) => {
                let known: Vec<&str> = sources.keys().map(String::as_str).collect();
                return Err(self.error(format!(
                    "`{name}` is from \"{source}\", which [sources] lacks; it has: {}",
                    if known.is_empty() { "nothing".to_owned() } else { known.join(", ") }
                )));
            }
            (None, Some(reason)) => Origin::Assumed(reason),
            (None, None) | (Some(_), Some(_)) => {
                return Err(self.wrong(
                    name,
                    value,
                    "either from = \"a key of [sources]\" or assumed = \"why\", so that readers \
                     know what to believe",
                ));
            }
        };
        if !key.kind.accepts(&amount) {
            return Err(self.wrong(name, &Value::Table(amount), &valid));
        }
        Ok(Figure { key, amount, origin, note: note.unwrap_or_default() })
    }
}
