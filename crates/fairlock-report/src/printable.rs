//! Text that programs and files choose, made fit to be shown: names of threads, functions and files may
//! contain anything, and a terminal obeys what is in them.
//!
//! Not for: the marks of HTML, which a page escapes besides.

use std::borrow::Cow;
use std::fmt::Write;

use serde_json::Value;

/// The text, with every character escaped that would do something else than show itself: controls,
/// ends of lines, and what changes the direction or is not to be seen.
///
/// ```
/// use fairlock_report::printable::printable;
/// assert_eq!(printable("reader-1 §"), "reader-1 §");
/// assert_eq!(printable("\u{1b}[31mred\n"), r"\x1b[31mred\x0a");
/// assert_eq!(printable("\u{202e}txt.exe"), r"\u{202e}txt.exe");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        let _ = match letter {
            _ if !acts(letter) => shown.write_char(letter),
            '\0'..='\u{ff}' => write!(shown, "\\x{:02x}", u32::from(letter)),
            _ => write!(shown, "\\u{{{:x}}}", u32::from(letter)),
        };
    }
    Cow::Owned(shown)
}

/// As [`printable`], of a text of several lines, which stay lines.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// Whether a character does not just show itself.
fn acts(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Makes all texts in a file's data printable, keys too.
pub fn make_printable(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(shown) = printable(text) {
                *text = shown;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(make_printable),
        Value::Object(fields) => {
            if fields.keys().any(|key| key.contains(acts)) {
                let all = std::mem::take(fields);
                fields.extend(all.into_iter().map(|(key, it)| (printable(&key).into_owned(), it)));
            }
            fields.values_mut().for_each(make_printable);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_that_acts_is_left_and_the_rest_stays(text in any::<String>()) {
            let shown = printable(&text);
            prop_assert!(!shown.contains(acts));
            prop_assert_eq!(printable(&shown), shown.as_ref());
            let plain: String = text.chars().filter(|letter| !acts(*letter)).collect();
            if plain == text {
                prop_assert_eq!(shown.as_ref(), text.as_str());
            }
        }
    }

    #[test]
    fn lines_stay_lines_and_data_stays_data() {
        assert_eq!(printable_lines("a\u{7}\nb\r\n"), "a\\x07\nb\\x0d\n");
        let mut value = serde_json::json!({"k\u{1b}": ["\u{9b}", {"a": "b"}, 1.5]});
        make_printable(&mut value);
        assert_eq!(value, serde_json::json!({"k\\x1b": ["\\x9b", {"a": "b"}, 1.5]}));
    }
}
