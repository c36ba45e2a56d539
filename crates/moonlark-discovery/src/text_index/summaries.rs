//! Titles and summaries of entries, as sets of words.
//!
//! A question that equals one, or that has just its words, means that entry,
//! whatever others say about the same words.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;

use moonlark_search::normalize_name;

/// Longer lines are texts: nobody asks for all of one.
const MAX_SUMMARY_LINE_WORDS: usize = 64;
/// What is still a line, where a description has to be cut for one.
const MAX_FIRST_SENTENCE_BYTES: usize = 300;

#[derive(Default)]
pub(super) struct SummaryLines {
    /// Words of all lines, those of one in order and each once.
    words: Vec<u32>,
    lines: Vec<SummaryLine>,
}

struct SummaryLine {
    entry: u32,
    /// Where its words begin; they end where those of the next do.
    start: u32,
    /// Of its letters and digits. None for a path: whoever asks for its words does not
    /// mean it and nothing else.
    letters: Option<NonZeroU64>,
}

/// What a line is to its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    Summary,
    Path,
}

impl SummaryLines {
    /// Lines come in the order of their entries.
    pub(super) fn push(&mut self, entry: u32, text: &str, mut words: Vec<u32>, kind: LineKind) {
        words.sort_unstable();
        words.dedup();
        if words.len() > MAX_SUMMARY_LINE_WORDS {
            return;
        }
        let start = self.words.len() as u32;
        self.words.extend(words);
        let letters = (kind == LineKind::Summary).then(|| hash_letters(text));
        self.lines.push(SummaryLine { entry, start, letters });
    }

    /// Entries with a line of just these letters, up to case and punctuation.
    pub(super) fn entries_with_letters(&self, text: &str) -> impl Iterator<Item = u32> {
        let letters = (!normalize_name(text).is_empty()).then(|| hash_letters(text));
        let same = move |line: &&SummaryLine| letters.is_some() && line.letters == letters;
        self.lines.iter().filter(same).map(|line| line.entry)
    }

    /// Entries with a line of just these words, which are in order and each once.
    pub(super) fn entries_with_words<'a>(
        &'a self,
        words: &'a [u32],
    ) -> impl Iterator<Item = u32> + 'a {
        let lines = self.lines.iter().enumerate();
        let same = move |(at, line): &(usize, &SummaryLine)| {
            !words.is_empty() && line.letters.is_some() && self.line_words(*at) == words
        };
        lines.filter(same).map(|(_, line)| line.entry)
    }

    /// The words of each line of an entry, and what the line is.
    pub(super) fn entry_lines(&self, entry: u32) -> impl Iterator<Item = (LineKind, &[u32])> {
        let first = self.lines.partition_point(|line| line.entry < entry);
        let after = self.lines.partition_point(|line| line.entry <= entry);
        let kind = |line: usize| match self.lines[line].letters {
            Some(_) => LineKind::Summary,
            None => LineKind::Path,
        };
        (first..after).map(move |at| (kind(at), self.line_words(at)))
    }

    /// About how many bytes it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words) + size_of_val(&*self.lines)
    }

    fn line_words(&self, line: usize) -> &[u32] {
        let end = self.lines.get(line + 1).map_or(self.words.len(), |next| next.start as usize);
        &self.words[self.lines[line].start as usize..end]
    }
}

fn hash_letters(text: &str) -> NonZeroU64 {
    let mut hasher = DefaultHasher::new();
    normalize_name(text).hash(&mut hasher);
    NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MAX)
}

/// The first sentence of a description, which says what something is, and the
/// rest of it.
pub fn split_first_sentence(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let paragraph = ["\n\n", "\r\n\r\n"].iter().filter_map(|gap| text.find(gap)).min();
    let paragraph = &text[..paragraph.unwrap_or(text.len())];
    let end = find_sentence_end(paragraph).unwrap_or(paragraph.len());
    if end > MAX_FIRST_SENTENCE_BYTES {
        return ("", text);
    }
    text.split_at(end)
}

/// Where the first sentence ends: at a full stop after a word of some length,
/// before something that begins a new one. An abbreviation or a number is no end.
fn find_sentence_end(text: &str) -> Option<usize> {
    const MIN_LAST_WORD_CHARS: usize = 3;
    text.match_indices(['.', '!', '?', '。']).map(|(at, mark)| (at, at + mark.len())).find_map(
        |(at, end)| {
            let long = text[..at].chars().rev().take(MIN_LAST_WORD_CHARS);
            let word = long.clone().count() == MIN_LAST_WORD_CHARS
                && long.into_iter().all(char::is_alphanumeric);
            let after = &text[end..];
            let begins = text[at..].starts_with('。')
                || (after.starts_with(char::is_whitespace)
                    && after.trim_start().starts_with(|it: char| !it.is_lowercase()));
            (word && begins).then_some(end)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence_is_what_something_is() {
        for (text, lead) in [
            ("Create an issue.\n\nAny user can.", "Create an issue."),
            ("Create an issue\n\nAny user can.", "Create an issue"),
            ("Create an issue. Any user can.", "Create an issue."),
            ("Uses v1.2 of e.g. the API. Then more", "Uses v1.2 of e.g. the API."),
            ("Reads one of them, i.e. Files", "Reads one of them, i.e. Files"),
            ("検索する。結果", "検索する。"),
            ("", ""),
        ] {
            assert_eq!(split_first_sentence(text).0, lead, "{text}");
        }
        let long = "word ".repeat(100);
        assert_eq!(split_first_sentence(&long), ("", long.as_str()));
    }

    #[test]
    fn lines_are_found_by_their_letters_and_by_their_words() {
        let mut lines = SummaryLines::default();
        lines.push(0, "Create an issue", vec![7, 3], LineKind::Summary);
        lines.push(0, "New issue", vec![3, 9], LineKind::Summary);
        lines.push(0, "/issues", vec![7], LineKind::Path);
        lines.push(2, "Create issues", vec![7, 3, 7], LineKind::Summary);
        assert_eq!(lines.entries_with_letters("create an issue!").collect::<Vec<_>>(), [0]);
        assert_eq!(lines.entries_with_letters("").count(), 0);
        assert_eq!(lines.entries_with_words(&[3, 7]).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(lines.entries_with_words(&[]).count(), 0);
        assert_eq!(lines.entries_with_letters("issues").count(), 0);
        assert_eq!(lines.entries_with_words(&[7]).count(), 0);
        assert_eq!(
            lines.entry_lines(0).collect::<Vec<_>>(),
            [
                (LineKind::Summary, &[3, 7][..]),
                (LineKind::Summary, &[3, 9]),
                (LineKind::Path, &[7])
            ]
        );
        assert_eq!(lines.entry_lines(1).count(), 0);
    }
}
