//! Texts of variables, `NAME=value` line by line, as `.env` files are written.
//!
//! `export` in front, comments, and values in quotes are understood. Nothing in a
//! value is expanded: what stands there is the value.

/// How a variable of the environment is looked up.
pub type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The variables of a text in its order, and the lines that are none.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ParsedEnvText {
    pub variables: Vec<(String, String)>,
    pub bad_lines: Vec<u32>,
}

pub fn parse_env_text(text: &str) -> ParsedEnvText {
    let mut parsed = ParsedEnvText::default();
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut line = 1;
    while !rest.is_empty() {
        let (taken, variable) = next_entry(rest);
        match variable {
            EnvTextEntry::Variable(name, value) => parsed.variables.push((name, value)),
            EnvTextEntry::Nothing => {}
            EnvTextEntry::Bad => parsed.bad_lines.push(line),
        }
        line += u32::try_from(rest[..taken].matches('\n').count()).unwrap_or(u32::MAX);
        rest = &rest[taken..];
    }
    parsed
}

/// One variable as a line, newline included, that reads back as the same value.
pub fn render_variable(name: &str, value: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:@%+,=~".contains(letter);
    let written = if !value.is_empty() && value.chars().all(plain) {
        value.to_owned()
    } else if !value.contains(['\'', '\n', '\r']) {
        format!("'{value}'")
    } else {
        let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$");
        format!("\"{}\"", escaped.replace('\n', "\\n").replace('\r', "\\r"))
    };
    format!("{name}={written}\n")
}

enum EnvTextEntry {
    Variable(String, String),
    Nothing,
    Bad,
}

/// What the text begins with, and how many of its bytes that takes.
fn next_entry(text: &str) -> (usize, EnvTextEntry) {
    let end = text.find('\n').map_or(text.len(), |at| at + 1);
    let line = text[..end].trim();
    if line.is_empty() || line.starts_with('#') {
        return (end, EnvTextEntry::Nothing);
    }
    let line = line.strip_prefix("export ").unwrap_or(line);
    let Some((name, value)) = line.split_once('=') else { return (end, EnvTextEntry::Bad) };
    let name = name.trim();
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
    if name.is_empty()
        || name.starts_with(|c: char| c.is_ascii_digit())
        || !name.chars().all(letter)
    {
        return (end, EnvTextEntry::Bad);
    }
    let value = value.trim_start();
    let Some(quote) = value.chars().next().filter(|first| matches!(first, '"' | '\'')) else {
        // A comment needs a space before it: `#` is part of many a password.
        let comment = value.find(" #").or_else(|| value.find("\t#")).unwrap_or(value.len());
        return (
            end,
            EnvTextEntry::Variable(name.to_owned(), value[..comment].trim_end().to_owned()),
        );
    };
    // A value in quotes may go on over lines.
    let Some(start) = text.find('=').and_then(|at| Some(at + 1 + text[at + 1..].find(quote)? + 1))
    else {
        return (end, EnvTextEntry::Bad);
    };
    match parse_quoted(&text[start..], quote) {
        Some((value, taken)) => {
            let after = start + taken;
            let end = text[after..].find('\n').map_or(text.len(), |at| after + at + 1);
            let rest = text[after..end].trim();
            if rest.is_empty() || rest.starts_with('#') {
                (end, EnvTextEntry::Variable(name.to_owned(), value))
            } else {
                (end, EnvTextEntry::Bad)
            }
        }
        None => (end, EnvTextEntry::Bad),
    }
}

/// The value up to the closing quote, and the bytes that takes with it.
fn parse_quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            letter if letter == quote => return Some((value, at + 1)),
            '\\' if quote == '"' => match letters.next()?.1 {
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                other @ ('"' | '\\' | '$' | '`') => value.push(other),
                other => value.extend(['\\', other]),
            },
            letter => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_as_env_files_have_them() {
        let text = "\u{feff}# comment\n\nA=1\nexport B = two words # comment\nC='#no $comment \"'\n\
                    D=\"a\\\"b\\nc \\$x\" # quoted\nE=\nF=p#ss=word\nG=\"over\ntwo lines\"\r\nH=ends";
        let parsed = parse_env_text(text);
        let expected = [
            ("A", "1"),
            ("B", "two words"),
            ("C", "#no $comment \""),
            ("D", "a\"b\nc $x"),
            ("E", ""),
            ("F", "p#ss=word"),
            ("G", "over\ntwo lines"),
            ("H", "ends"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parsed.variables, expected);
        assert!(parsed.bad_lines.is_empty());
    }

    #[test]
    fn lines_that_are_no_variables_are_numbered_and_cost_nothing_else() {
        let parsed = parse_env_text("just text\nA=1\n2B=x\nC=\"never closed\nD='x' y\nE=2\n=x");
        assert_eq!(parsed.bad_lines, [1, 3, 4, 5, 7]);
        let names: Vec<&str> = parsed.variables.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["A", "E"]);
    }

    #[test]
    fn what_is_written_reads_back_as_the_same() {
        for value in ["", "plain-1.2", "a b", "it's", "l1\nl2\r\n", "\"$x\" \\n", "#x", "ü=\"'\""]
        {
            let text = render_variable("NAME", value);
            let read = parse_env_text(&text);
            assert_eq!(read.variables, [("NAME".to_owned(), value.to_owned())], "{text}");
        }
    }
}
