//! Scripts that come in Markdown, as models like to send them.

/// The script without the fences around it. Where they were is an empty line, so
/// that messages name the lines that were sent.
pub(crate) fn strip_fences(script: String) -> String {
    let lines: Vec<&str> = script.lines().collect();
    let is_blank = |line: &&str| line.trim().is_empty();
    let Some(first) = lines.iter().position(|line| !is_blank(line)) else { return script };
    let Some(language) = lines[first].trim().strip_prefix("```") else { return script };
    if !language.trim().chars().all(|it| it.is_ascii_alphanumeric()) {
        return script;
    }
    let end = lines.iter().skip(first + 1).position(|line| line.trim() == "```");
    let end = end.map_or(lines.len(), |after| first + 1 + after);
    // What follows must be nothing: it is no part of the script.
    if !lines.iter().skip(end + 1).all(is_blank) {
        return script;
    }
    let inside = lines.iter().take(end).skip(first + 1).copied();
    let before = std::iter::repeat_n("", first + 1);
    before.chain(inside).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::strip_fences;

    #[test]
    fn fences_become_empty_lines() {
        for (sent, expected) in [
            ("```lua\nreturn 1\n```", "\nreturn 1"),
            ("\n```luau\nlocal a = 1\n\nreturn a\n```\n\n", "\n\nlocal a = 1\n\nreturn a"),
            ("```\nreturn 1", "\nreturn 1"),
            ("return `a`", "return `a`"),
            ("```lua\nreturn 1\n```\nThis returns 1.", "```lua\nreturn 1\n```\nThis returns 1."),
            ("return 1\n```", "return 1\n```"),
            ("", ""),
        ] {
            assert_eq!(strip_fences(sent.to_owned()), expected);
        }
    }
}
