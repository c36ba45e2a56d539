//! Secret literals in scripts, found by the names they are given: `password = "…"`,
//! `["Authorization"] = 'Bearer …'`, `"api_key": "…"`.
//!
//! No language is parsed here: what stands in quotes after such a name and `=` or `:`
//! counts, in any of them.

use std::borrow::Cow;
use std::ops::Range;

use super::{SecretValue, Secrets, is_secret_name};

const REDACTED_LITERAL_MARK: &str = "[redacted]";

/// The script without them.
pub fn redact_literals(script: &str) -> Cow<'_, str> {
    let found = find_literals(script);
    if found.is_empty() {
        return Cow::Borrowed(script);
    }
    let mut out = String::new();
    let mut done = 0;
    for (_, text) in found {
        out.push_str(&script[done..text.start]);
        out.push_str(REDACTED_LITERAL_MARK);
        done = text.end;
    }
    out.push_str(&script[done..]);
    Cow::Owned(out)
}

/// The same, to be taken out of what the script led to.
pub fn secrets_from_literals(script: &str) -> Secrets {
    secrets_with_literals(script, Vec::new())
}

/// Those, and others that are known.
pub fn secrets_with_literals(script: &str, mut secrets: Vec<SecretValue>) -> Secrets {
    for (name, text) in find_literals(script) {
        let whole = &script[text];
        // Of `Bearer abc`, a server may well echo the second word alone.
        let last = whole.split_whitespace().next_back().unwrap_or(whole);
        for value in [whole, last] {
            let (key, value) = (name.to_owned(), value.to_owned());
            secrets.push(SecretValue { key, value, by_name: true });
        }
    }
    Secrets::new(secrets)
}

/// Their names, and where they are.
fn find_literals(script: &str) -> Vec<(&str, Range<usize>)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = script[from..].find(['"', '\'', '`']).map(|at| from + at) {
        let end = literal_end(script, at);
        let name = name_before(&script[..at]).filter(|name| is_secret_name(name));
        if let Some(name) = name.filter(|_| end > at + 1) {
            found.push((name, at + 1..end));
        }
        // The quote that closes it is passed over.
        from = (end + 1).min(script.len());
    }
    found
}

/// Where the quote is that closes the one at `at`; the end of the line where it is
/// not closed.
fn literal_end(script: &str, at: usize) -> usize {
    let quote = script.as_bytes()[at];
    let mut escaped = false;
    for (offset, byte) in script.bytes().enumerate().skip(at + 1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'\n' if quote != b'`' => return offset,
            byte if byte == quote => return offset,
            _ => {}
        }
    }
    script.len()
}

/// The name that a text after `before` is given: `name =`, `["name"] =`, `"name":`.
fn name_before(before: &str) -> Option<&str> {
    let before = before.trim_end();
    let before = before.strip_suffix(['=', ':'])?.trim_end();
    let before = before.strip_suffix(']').unwrap_or(before).trim_end();
    let before = before.trim_end_matches(['"', '\'']);
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let length: usize = before.chars().rev().take_while(|c| is_name(*c)).map(char::len_utf8).sum();
    before.get(before.len() - length..).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_lose_their_value_where_their_name_is_secret() {
        for (script, expected) in [
            ("password = 'x'", "password = '[redacted]'"),
            ("local api_token=\"a\\\"b\" .. y", "local api_token=\"[redacted]\" .. y"),
            ("{ [\"Authorization\"] = `Bearer {t}` }", "{ [\"Authorization\"] = `[redacted]` }"),
            ("{\"api_key\": \"a\", \"b\": \"c\"}", "{\"api_key\": \"[redacted]\", \"b\": \"c\"}"),
            ("headers = { ['X-Api-Key'] = 'ü' }", "headers = { ['X-Api-Key'] = '[redacted]' }"),
            ("secret = 'not closed\nb = 'c'", "secret = '[redacted]\nb = 'c'"),
        ] {
            assert_eq!(redact_literals(script), expected);
        }
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        for script in [
            "",
            "name = 'x'",
            "if token == '' then end",
            "token = get('name')",
            "say(\"password: \", 'x')",
            "author = 'Ann'",
            "'ü' \"",
            "password = ''",
        ] {
            assert_eq!(redact_literals(script), script);
        }
    }

    #[test]
    fn what_a_script_led_to_loses_them_too() {
        let secrets = secrets_from_literals("get(url, { Authorization = 'Bearer hunter22' })");
        assert_eq!(
            secrets.redact_text("you said Bearer hunter22, and hunter22"),
            "you said [redacted:Authorization], and [redacted:Authorization]"
        );
    }
}
