//! Splitting of long blocks: cut where it hurts least.

use std::ops::Range;

use super::ChunkSettings;

/// Every piece but the first begins with the end of the one before. Each byte
/// is looked at a few times, however long the block is.
pub(super) fn split_block_range(
    text: &str,
    range: Range<usize>,
    prose: bool,
    settings: &ChunkSettings,
) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut start = range.start;
    while range.end - start > settings.most {
        let low = text.floor_char_boundary(start + settings.target / 2);
        let high = text.floor_char_boundary(start + settings.target);
        let at = low + find_best_cut(&text[low..high], prose);
        pieces.push(start..at);
        start = find_overlap_start(text, at, prose, settings.overlap);
    }
    if !text[start..range.end].trim().is_empty() {
        pieces.push(start..range.end);
    }
    pieces
}

/// Where to cut within what may be cut: the last of the best places.
fn find_best_cut(window: &str, prose: bool) -> usize {
    let paragraph = || window.rfind("\n\n").map(|at| at + 2);
    let line = || window.rfind('\n').map(|at| at + 1);
    let sentence = || sentence_ends(window).last();
    let (first, second) = if prose { (sentence(), line()) } else { (line(), None) };
    let clause = |char: char| matches!(char, ',' | ';' | '}' | ']' | '>' | '，' | '、' | '；');
    let after = |at: usize| at + window[at..].chars().next().map_or(0, char::len_utf8);
    paragraph()
        .or(first)
        .or(second)
        .or_else(sentence)
        .or_else(|| window.rfind(char::is_whitespace).map(after))
        .or_else(|| window.rfind(clause).map(after))
        .unwrap_or(window.len())
}

/// Where the next piece begins: a little before the cut, at the beginning of a
/// sentence, a line or a word.
fn find_overlap_start(text: &str, at: usize, prose: bool, overlap: usize) -> usize {
    let from = text.floor_char_boundary(at - overlap);
    let window = &text[from..at];
    let inside = |place: &usize| *place < window.trim_end().len();
    let begin = if prose {
        sentence_ends(window).find(inside)
    } else {
        window.find('\n').map(|at| at + 1).filter(inside)
    };
    let word = || {
        let space = window.find(char::is_whitespace)?;
        let rest = &window[space..];
        Some(space + rest.len() - rest.trim_start().len()).filter(inside)
    };
    let start = from + begin.or_else(word).unwrap_or(0);
    // A line of code keeps its indentation.
    if prose { start + (text[start..at].len() - text[start..at].trim_start().len()) } else { start }
}

/// The places right after a sentence.
fn sentence_ends(window: &str) -> impl Iterator<Item = usize> + '_ {
    let mut before = ' ';
    window.char_indices().filter_map(move |(at, char)| {
        let last = std::mem::replace(&mut before, char);
        match char {
            '。' | '！' | '？' | '｡' => Some(at + char.len_utf8()),
            _ if char.is_whitespace() && matches!(last, '.' | '!' | '?' | '…') => {
                Some(at + char.len_utf8())
            }
            _ => None,
        }
    })
}
