//! A study of a user's: a file anywhere, and what a recording keeps of it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use fairlock_report::printable::make_printable;
use serde_json::Value;

use super::{Study, StudyError, names};

/// A longer file is no study.
const LONGEST: u64 = 1 << 20;

/// The study that is meant on a command line: one of the program, or the file at a path.
///
/// # Errors
/// An unknown name, a file that cannot be read, a mistake in it.
pub(super) fn find(name_or_path: &str) -> Result<Study, StudyError> {
    let is_known = names().contains(&name_or_path);
    let is_path = name_or_path.contains('/') || name_or_path.ends_with(".toml");
    let path = Path::new(name_or_path);
    if is_path || !is_known && path.is_file() { read(path) } else { super::find(name_or_path) }
}

/// Reads a study file. The study is called as the file is, without `.toml`.
fn read(path: &Path) -> Result<Study, StudyError> {
    let shown = path.display();
    let cannot = |why: &str| StudyError(format!("cannot read the study {shown}: {why}"));
    let text = text_of(path).map_err(|why| cannot(&why))?;
    let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) else {
        return Err(cannot("its name is not UTF-8"));
    };
    let mistake = |(line, text): (Option<usize>, String)| match line {
        Some(line) => StudyError(format!("{shown}, line {line}: {text}")),
        None => StudyError(format!("{shown}: {text}")),
    };
    // What is wrong with the text is told by its lines; what is kept of it has none.
    parsed(&text).map_err(mistake)?;
    let mut kept: Value = toml::from_str(&text)
        .map_err(|error| mistake((line_of(&text, &error), error.message().to_owned())))?;
    join_lines(&mut kept);
    make_printable(&mut kept);
    let study = from_value(&kept).map_err(|text| mistake((None, text)))?;
    let study = study.settled(name).map_err(|wrong| mistake((wrong.line(&text), wrong.text)))?;
    Ok(Study { file: Some(kept), ..study })
}

fn text_of(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    if !file.metadata().is_ok_and(|it| it.is_file()) {
        return Err("it is not a file; give the path of a study file (.toml)".to_owned());
    }
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    match text.len() as u64 <= LONGEST {
        true => Ok(text),
        false => Err("it is longer than 1 MiB, and so no study".to_owned()),
    }
}

/// What a study file says, or in which line something is wrong and what.
pub(super) fn parsed(text: &str) -> Result<Study, (Option<usize>, String)> {
    toml::from_str(text).map_err(|error| (line_of(text, &error), error.message().to_owned()))
}

fn line_of(text: &str, error: &toml::de::Error) -> Option<usize> {
    let start = error.span()?.start;
    Some(text.get(..start)?.matches('\n').count() + 1)
}

fn from_value(kept: &Value) -> Result<Study, String> {
    serde_json::from_value(kept.clone()).map_err(|error| error.to_string())
}

/// Texts of several lines become one: nobody shows them otherwise, and the ends of lines would be shown as escapes.
fn join_lines(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(['\n', '\t', '\r']) => {
            *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        Value::Array(values) => values.iter_mut().for_each(join_lines),
        Value::Object(fields) => fields.values_mut().for_each(join_lines),
        _ => {}
    }
}

impl Study {
    /// The study whose file a recording has kept.
    pub(super) fn from_recording(name: &str, kept: &Value) -> Result<Study, StudyError> {
        let study = from_value(kept).and_then(|it| it.settled(name).map_err(|wrong| wrong.text));
        let study = study.map_err(|text| StudyError(format!("study {name}: {text}")))?;
        Ok(Study { file: Some(kept.clone()), ..study })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::FILES;

    #[test]
    fn what_a_recording_keeps_of_a_file_is_the_study() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in FILES {
            let path = folder.path().join(format!("{name}.toml"));
            std::fs::write(&path, text).expect("room");
            let read =
                find(path.to_str().expect("UTF-8")).unwrap_or_else(|error| panic!("{error}"));
            let kept = read.file.clone().expect("it is kept");
            assert_eq!(Study::from_recording(name, &kept).as_ref(), Ok(&read));
            // But for ends of lines in its prose.
            let built_in = super::super::find(name).expect("it is sound");
            let (question, method) = (read.question.clone(), read.method.clone());
            assert_eq!(
                Study { file: None, question, method, ..built_in.clone() },
                Study { file: None, ..read }
            );
        }
    }
}
