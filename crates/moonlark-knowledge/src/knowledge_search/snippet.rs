//! Snippets: where the question's words stand closest in a chunk, marked.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use moonlark_search::{TextLanguage, for_each_term_in};

/// Bytes of the chunk that are shown.
const MAX_SNIPPET_BYTES: usize = 280;
/// Of these, before the first word.
const SNIPPET_BYTES_BEFORE_MATCH: usize = 60;

/// `asked` has the terms of the question, the numbers being their order.
pub(super) fn build_snippet(
    language: TextLanguage,
    text: &str,
    asked: &HashMap<String, usize>,
) -> String {
    let mut found: Vec<(Range<usize>, usize)> = Vec::new();
    for_each_term_in(language, text, |term| {
        if let Some(number) = asked.get(term.text) {
            found.push((term.at, *number));
        }
    });
    let window = best_window(text, &found);
    let marks = marks_in_window(&found, &window);
    render_snippet(text, window, &marks)
}

/// The terms of the question that these texts have, in its order.
pub(super) fn matched_terms(
    language: TextLanguage,
    texts: &[&str],
    asked: &HashMap<String, usize>,
) -> Vec<String> {
    let mut found = BTreeSet::new();
    for text in texts {
        for_each_term_in(language, text, |term| {
            if let Some(number) = asked.get(term.text) {
                found.insert((*number, term.text.to_owned()));
            }
        });
    }
    found.into_iter().map(|(_, term)| term).collect()
}

/// The part of the text with most of the different words, the first of equals.
fn best_window(text: &str, found: &[(Range<usize>, usize)]) -> Range<usize> {
    if text.len() <= MAX_SNIPPET_BYTES {
        return 0..text.len();
    }
    let mut best = (0, 0);
    let mut end = 0;
    let mut inside: HashMap<usize, usize> = HashMap::new();
    for (first, (at, number)) in found.iter().enumerate() {
        while let Some((next, of)) = found.get(end)
            && next.end <= at.start + MAX_SNIPPET_BYTES - SNIPPET_BYTES_BEFORE_MATCH
        {
            *inside.entry(*of).or_default() += 1;
            end += 1;
        }
        let different = inside.values().filter(|count| **count > 0).count();
        if different > best.0 {
            best = (different, at.start);
        }
        if first < end
            && let Some(count) = inside.get_mut(number)
        {
            *count = count.saturating_sub(1);
        }
        end = end.max(first + 1);
    }
    let start = if best.0 == 0 { 0 } else { best.1.saturating_sub(SNIPPET_BYTES_BEFORE_MATCH) };
    // As much as fits, also when the words are at the end.
    let start = start.min(text.len().saturating_sub(MAX_SNIPPET_BYTES));
    let start = text.floor_char_boundary(start);
    let end = text.floor_char_boundary(start + MAX_SNIPPET_BYTES);
    snap_to_words(text, start..end)
}

/// Not in the middle of words, if they are not too long.
fn snap_to_words(text: &str, window: Range<usize>) -> Range<usize> {
    const MAX_SNAP_CHARS: usize = 30;
    let Range { mut start, mut end } = window;
    let word = |letter: char| letter.is_alphanumeric();
    if text[..start].chars().next_back().is_some_and(word) {
        let rest =
            text[start..end].char_indices().take(MAX_SNAP_CHARS).find(|(_, letter)| !word(*letter));
        start += rest.map_or(0, |(at, _)| at);
    }
    if text[end..].chars().next().is_some_and(word) {
        let rest = text[start..end]
            .char_indices()
            .rev()
            .take(MAX_SNAP_CHARS)
            .find(|(_, letter)| !word(*letter));
        end = rest.map_or(end, |(at, letter)| start + at + letter.len_utf8());
    }
    start..end
}

/// What to mark inside of the window: words that touch or overlap are one mark.
fn marks_in_window(found: &[(Range<usize>, usize)], window: &Range<usize>) -> Vec<Range<usize>> {
    let mut inside: Vec<Range<usize>> = found
        .iter()
        .map(|(at, _)| at.clone())
        .filter(|at| at.start >= window.start && at.end <= window.end)
        .collect();
    inside.sort_by_key(|at| (at.start, at.end));
    let mut marks: Vec<Range<usize>> = Vec::new();
    for at in inside {
        match marks.last_mut() {
            Some(last) if at.start <= last.end => last.end = last.end.max(at.end),
            _ => marks.push(at),
        }
    }
    marks
}

/// On one line, with an ellipsis where the chunk goes on.
fn render_snippet(text: &str, window: Range<usize>, marks: &[Range<usize>]) -> String {
    let mut drawn = String::with_capacity(window.len() + 16);
    let mut push = |part: &str| {
        for letter in part.chars() {
            let space = letter.is_whitespace() || letter.is_control();
            if !space {
                drawn.push(letter);
            } else if !drawn.is_empty() && !drawn.ends_with(' ') {
                drawn.push(' ');
            }
        }
    };
    if window.start > 0 {
        push("…");
    }
    let mut at = window.start;
    for mark in marks {
        push(&text[at..mark.start]);
        push("**");
        push(&text[mark.clone()]);
        push("**");
        at = mark.end;
    }
    push(&text[at..window.end]);
    let more = window.end < text.trim_end().len();
    let mut drawn = drawn.trim_end().to_owned();
    if more {
        drawn.push('…');
    }
    drawn
}

#[cfg(test)]
mod tests {
    use moonlark_search::ParsedQuery;

    use super::*;

    fn check(text: &str, question: &str, expected: &str) {
        let asked = ParsedQuery::parse(question).terms.into_iter().enumerate();
        let asked = asked.map(|(number, it)| (it.term, number)).collect();
        assert_eq!(build_snippet(TextLanguage::English, text, &asked), expected);
    }

    #[test]
    fn words_are_marked_by_their_stems() {
        check(
            "Deploying is easy.\n\nWe deploy daily.",
            "how to deploy",
            "**Deploying** is easy. We **deploy** daily.",
        );
        check("日本語の検索エンジン", "検索", "日本語の**検索**エンジン");
        check("nothing here", "deploy", "nothing here");
        check("Ship 🚀 it", "🚀", "Ship **🚀** it");
    }

    #[test]
    fn it_shows_where_most_of_the_words_are() {
        let text = format!(
            "A rollback. {} Then rollback the deployment by hand. {}",
            "x y ".repeat(200),
            "z ".repeat(300)
        );
        let asked = ParsedQuery::parse("rollback a deployment").terms.into_iter().enumerate();
        let asked = asked.map(|(number, it)| (it.term, number)).collect();
        let shown = build_snippet(TextLanguage::English, &text, &asked);
        assert!(shown.contains("Then **rollback** the **deployment** by hand."), "{shown}");
        assert!(shown.starts_with('…') && shown.ends_with('…') && shown.len() < 320, "{shown}");
    }

    #[test]
    fn any_text_has_a_snippet() {
        for text in
            ["", " ", "\0\0", "€".repeat(500).as_str(), &"a".repeat(5_000), &"a€ ".repeat(900)]
        {
            let asked = HashMap::from([("a".to_owned(), 0)]);
            assert!(build_snippet(TextLanguage::English, text, &asked).len() <= 1_200);
        }
    }
}
