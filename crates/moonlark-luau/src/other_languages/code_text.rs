//! Lexing of script lines that the parser rejects.

/// The line without what is in quotes, which may look like anything.
pub(super) fn strip_quoted_text(line: &str) -> String {
    let mut code = String::new();
    let mut quote: Option<char> = None;
    let mut escaped = false;
    for letter in line.chars().take(1000) {
        match quote {
            None => {
                if matches!(letter, '"' | '\'' | '`') {
                    quote = Some(letter);
                }
                code.push(letter);
            }
            Some(_) if escaped => escaped = false,
            Some(_) if letter == '\\' => escaped = true,
            Some(open) if letter == open => {
                quote = None;
                code.push(letter);
            }
            Some(_) => {}
        }
    }
    code
}

pub(super) fn is_word_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

pub(super) fn first_word(code: &str) -> &str {
    let end = code.find(|it| !is_word_letter(it)).unwrap_or(code.len());
    &code[..end]
}

pub(super) fn has_word(code: &str, word: &str) -> bool {
    code.split(|it| !is_word_letter(it)).any(|it| it == word) && !code.contains(&format!(":{word}"))
}

/// The names that are called with a dot: `push` in `list.push(4)`.
pub(super) fn called_fields(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices('.').filter_map(|(at, _)| {
        let name = first_word(&code[at + 1..]);
        let rest = &code[at + 1 + name.len()..];
        (!name.is_empty() && rest.trim_start().starts_with(['(', '{', '"', '\''])).then_some(name)
    })
}

/// The names that are read with a dot and not called: `length` in `list.length`.
pub(super) fn accessed_fields(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices('.').filter_map(|(at, _)| {
        let name = first_word(&code[at + 1..]);
        let rest = &code[at + 1 + name.len()..];
        (!name.is_empty() && !rest.trim_start().starts_with('(')).then_some(name)
    })
}
