//! The tokens of a Luau script, with their places: enough to find literals and names.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptTokenKind {
    Name,
    Number,
    /// In quotes or long brackets.
    Text,
    /// In backticks: it may have expressions in it.
    Interpolated,
    Sign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptToken<'a> {
    pub kind: ScriptTokenKind,
    pub text: &'a str,
    /// In bytes.
    pub start: usize,
    /// From one.
    pub line: u32,
}

impl ScriptToken<'_> {
    pub fn is_literal(&self) -> bool {
        matches!(self.kind, ScriptTokenKind::Number | ScriptTokenKind::Text)
            || matches!(self.text, "true" | "false")
    }

    pub fn is_name(&self, name: &str) -> bool {
        self.kind == ScriptTokenKind::Name && self.text == name
    }

    /// Its type, as parameters have it.
    pub fn literal_kind(&self) -> &'static str {
        match self.kind {
            ScriptTokenKind::Text => "string",
            ScriptTokenKind::Number
                if self.text.bytes().all(|it| it.is_ascii_digit() || it == b'_') =>
            {
                "integer"
            }
            ScriptTokenKind::Number => "number",
            _ => "boolean",
        }
    }
}

pub fn tokenize_script(script: &str) -> Vec<ScriptToken<'_>> {
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(first) = script[at..].chars().next() {
        let rest = &script[at..];
        let (kind, length) = match first {
            _ if rest.starts_with("--") => (None, comment_length(rest)),
            it if it.is_whitespace() => (None, it.len_utf8()),
            '"' | '\'' => (Some(ScriptTokenKind::Text), quoted_length(rest, first)),
            '`' => (Some(ScriptTokenKind::Interpolated), quoted_length(rest, first)),
            '[' if long_bracket_length(rest).is_some() => {
                (Some(ScriptTokenKind::Text), long_bracket_length(rest).unwrap_or(1))
            }
            it if it.is_ascii_alphabetic() || it == '_' => {
                let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
                (Some(ScriptTokenKind::Name), prefix_length(rest, is_part))
            }
            it if it.is_ascii_digit() => (Some(ScriptTokenKind::Number), number_length(rest)),
            it => (Some(ScriptTokenKind::Sign), it.len_utf8()),
        };
        let text = &rest[..length];
        tokens.extend(kind.map(|kind| ScriptToken { kind, text, start: at, line }));
        line += text.bytes().filter(|it| *it == b'\n').count() as u32;
        at += length;
    }
    tokens
}

fn prefix_length(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|it| !is_part(it)).unwrap_or(text.len())
}

/// Digits, a fraction and an exponent; `..` is none of it.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut length = 0;
    while let Some(byte) = bytes.get(length) {
        let is_sign = matches!(byte, b'+' | b'-')
            && !text.starts_with("0x")
            && matches!(bytes[length - 1], b'e' | b'E');
        let is_dot = *byte == b'.' && bytes.get(length + 1) != Some(&b'.');
        if !(byte.is_ascii_alphanumeric() || *byte == b'_' || is_dot || length > 0 && is_sign) {
            break;
        }
        length += 1;
    }
    length
}

fn comment_length(text: &str) -> usize {
    match long_bracket_length(&text[2..]) {
        Some(length) => 2 + length,
        None => text.find('\n').unwrap_or(text.len()),
    }
}

/// `[[…]]` and `[=[…]=]`.
fn long_bracket_length(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('[')?;
    let level = prefix_length(inner, |it| it == '=');
    inner[level..].strip_prefix('[')?;
    let end = format!("]{}]", "=".repeat(level));
    let begins = level + 2;
    Some(text[begins..].find(&end).map_or(text.len(), |at| begins + at + end.len()))
}

fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            it if it == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_found_and_what_only_looks_like_one_is_not() {
        let script = "-- \"no\" 1\nlocal a = f('it\\'s', 7, 1.5e-3, 0x1F) --[[ 'no' ]] .. [[long\n2]]\n\
                      local b = `no {\"no\"}` if true then return 1..2 end";
        let literals: Vec<(&str, &str, u32)> = tokenize_script(script)
            .iter()
            .filter(|it| it.is_literal())
            .map(|it| (it.text, it.literal_kind(), it.line))
            .collect();
        assert_eq!(
            literals,
            [
                ("'it\\'s'", "string", 2),
                ("7", "integer", 2),
                ("1.5e-3", "number", 2),
                ("0x1F", "number", 2),
                ("[[long\n2]]", "string", 2),
                ("true", "boolean", 4),
                ("1", "integer", 4),
                ("2", "integer", 4),
            ]
        );
    }

    #[test]
    fn every_byte_is_in_a_token_or_between_two() {
        for script in ["", "\"", "--", "[==[", "`{", "ü = 'ü'", "a.b:c(1)", "\\", "1e", "0x"] {
            let tokens = tokenize_script(script);
            assert!(tokens.iter().all(|it| script[it.start..].starts_with(it.text)), "{script}");
        }
    }
}
