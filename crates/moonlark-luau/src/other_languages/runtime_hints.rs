//! Hints for run-time errors that come of another language's ways.

use super::code_text::{accessed_fields, called_fields, is_word_letter, strip_quoted_text};
use super::name_hints::{FieldReceiver, hint_for_field};

/// What to do about an error at run time, by its words and its line.
pub(crate) fn hint_for_runtime_error(
    message: &str,
    line: &str,
    for_agents: bool,
) -> Option<&'static str> {
    let code = strip_quoted_text(line);
    if let Some(hint) = hint_for_method(message) {
        return Some(hint);
    }
    let starts = |words: &str| message.starts_with(words);
    let lengths = ["length", "len"];
    let hint = match () {
        () if starts("attempt to call a nil value") => {
            return called_fields(&code)
                .find_map(|name| hint_for_field(FieldReceiver::Unknown, name));
        }
        () if starts("attempt to call a table value") && calls_length(&code) => {
            "the length of a list is #list, without ()"
        }
        // A field that no text or list has was nil.
        () if message.contains("nil") && accessed_fields(&code).any(|it| lengths.contains(&it)) => {
            "the length of a list or a text is #value"
        }
        () if starts("attempt to index nil") && code.contains("[0]") => {
            "lists count from 1: the first item is list[1]"
        }
        () if starts("attempt to index nil") && code.contains("[-") => {
            "there are no places below 1: the last item is list[#list]"
        }
        () if starts("attempt to index number with") => {
            "a number has no fields; in for x in list do, x is the place: write for _, x in list do"
        }
        () if starts("attempt to concatenate") && message.contains("nil") => {
            "one of the values is nil: print(value) shows what there is, tostring(value) makes text of it"
        }
        () if starts("attempt to concatenate") && message.contains("table") => {
            "a table is no text: use one of its fields, or json.encode(value)"
        }
        () if starts("attempt to concatenate") && message.contains("boolean") => {
            "write tostring(value), or `{value}` in backticks"
        }
        () if starts("attempt to perform arithmetic")
            && message.contains("string")
            && code.contains('+') =>
        {
            "texts are joined with .., or written `a {b}` in backticks"
        }
        () if starts("attempt to compare")
            && message.contains("string")
            && message.contains("number") =>
        {
            "one of the two is a text: tonumber(text) makes a number of it"
        }
        () if starts("attempt to index nil") && for_agents => {
            "what is before the name is nil: print(value) of the table it came from shows what it has"
        }
        () if (starts("attempt to get length of a nil")
            || starts("attempt to iterate over a nil"))
            && for_agents =>
        {
            "the value is nil: print(value) of the table it came from shows what it has"
        }
        () if message.contains("(table expected, got nil)") => {
            "the value is nil: print of the table it came from shows what it has"
        }
        () if message.contains("(table expected, got string)") => {
            "the value is a text: if it is JSON, json.decode(text) gives the table"
        }
        () => return None,
    };
    Some(hint)
}

/// `attempt to call missing method 'push' of table`
fn hint_for_method(message: &str) -> Option<&'static str> {
    let rest = message.strip_prefix("attempt to call missing method '")?;
    let (name, rest) = rest.split_once('\'')?;
    let receiver = match rest.trim_start().strip_prefix("of ") {
        Some("string") => FieldReceiver::Text,
        Some("table") => FieldReceiver::List,
        _ => FieldReceiver::Unknown,
    };
    hint_for_field(receiver, name)
}

/// `#list()`
fn calls_length(code: &str) -> bool {
    code.match_indices('#').any(|(at, _)| {
        let rest = code[at + 1..].trim_start_matches(|it| is_word_letter(it) || it == '.');
        rest.starts_with('(') && rest.len() < code.len() - at - 1
    })
}
