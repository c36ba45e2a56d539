//! PDF layout: lines on pages become paragraphs and headings, by font size and distance.

use std::collections::BTreeMap;

use super::PdfBlock;

/// One line of a page.
#[derive(Debug, Clone)]
pub(super) struct PdfLine {
    pub(super) text: String,
    /// Of its largest character.
    pub(super) size: f64,
    /// Upwards.
    pub(super) y: f64,
    pub(super) page: u32,
}

/// Bytes of a line that may be a heading.
const MAX_PDF_HEADING_BYTES: usize = 200;
/// Bytes of a paragraph; whatever is longer was none.
const MAX_PDF_PARAGRAPH_BYTES: usize = 16 * 1024;

pub(super) fn layout_blocks(lines: Vec<PdfLine>) -> Vec<PdfBlock> {
    let lines = without_margins(lines);
    let levels = heading_levels(&lines, body_font_size(&lines));
    let apart = max_line_spacing(&lines);
    let mut blocks: Vec<PdfBlock> = Vec::new();
    let mut last: Option<&PdfLine> = None;
    for line in &lines {
        let text = normalize_spaces(&line.text);
        let level = levels.get(&to_half_points(line.size)).copied();
        let level = level.filter(|_| {
            text.len() <= MAX_PDF_HEADING_BYTES && text.chars().any(char::is_alphabetic)
        });
        let follows = last.is_some_and(|last| continues_paragraph(last, line, apart));
        match blocks.last_mut() {
            Some(block)
                if follows
                    && block.level == level
                    && block.text.len() < MAX_PDF_PARAGRAPH_BYTES =>
            {
                append_line(&mut block.text, &text);
            }
            _ => blocks.push(PdfBlock { level, text }),
        }
        last = Some(line);
    }
    blocks
}

/// White space as one space, and rows of dots as one dot.
fn normalize_spaces(text: &str) -> String {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    words.dedup_by(|word, before| *word == "." && *before == ".");
    words.join(" ")
}

/// Without what stands at the same place of many pages, but for its number: it
/// would stand in the midst of sentences. Words among it are kept once.
fn without_margins(mut lines: Vec<PdfLine>) -> Vec<PdfLine> {
    let place = |line: &PdfLine| {
        let text: String = line.text.chars().filter(|char| !char.is_ascii_digit()).collect();
        (to_half_points(line.y), normalize_spaces(&text))
    };
    let mut pages: BTreeMap<(i64, String), (u32, u32)> = BTreeMap::new();
    let mut all = 0;
    for line in &lines {
        let (count, last) = pages.entry(place(line)).or_default();
        if *last != line.page {
            (*count, *last) = (*count + 1, line.page);
        }
        all = all.max(line.page);
    }
    // Left and right pages may differ.
    let often = (all / 3).max(3);
    pages.retain(|_, (count, _)| *count >= often);
    lines.retain(|line| match pages.get_mut(&place(line)) {
        None => true,
        Some((count, _)) => std::mem::take(count) > 0 && !place(line).1.is_empty(),
    });
    lines
}

/// The size that most of the text is written in.
fn body_font_size(lines: &[PdfLine]) -> i64 {
    let mut letters = BTreeMap::new();
    for line in lines {
        *letters.entry(to_half_points(line.size)).or_insert(0) += line.text.len();
    }
    letters.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(size, _)| size)
}

/// Sizes clearly over that of the text are those of headings, the largest first.
fn heading_levels(lines: &[PdfLine], body: i64) -> BTreeMap<i64, u8> {
    let mut sizes: Vec<i64> = lines.iter().map(|line| to_half_points(line.size)).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes.dedup();
    let larger = sizes.into_iter().filter(|size| *size * 100 >= body * 112 && *size > body);
    larger.enumerate().map(|(rank, size)| (size, (rank + 1).min(6) as u8)).collect()
}

fn to_half_points(size: f64) -> i64 {
    // Saturates where it is no number that a size could be.
    (size * 2.0).round() as i64
}

/// How far lines of one paragraph are apart at most, for their size: a fifth
/// more than most of them are.
fn max_line_spacing(lines: &[PdfLine]) -> f64 {
    let mut steps = BTreeMap::new();
    for (last, line) in lines.iter().zip(lines.iter().skip(1)) {
        let step = (last.y - line.y) / line.size;
        if last.page == line.page && (0.8..4.0).contains(&step) {
            *steps.entry((step * 20.0).round() as i64).or_insert(0) += line.text.len();
        }
    }
    let most = steps.into_iter().max_by_key(|(_, count)| *count);
    most.map_or(1.5, |(step, _)| (step as f64 / 20.0 * 1.2).clamp(1.3, 3.0))
}

/// Whether `line` goes on with what `last` began.
fn continues_paragraph(last: &PdfLine, line: &PdfLine, apart: f64) -> bool {
    let starts = line.text.trim_start();
    if starts.starts_with(['•', '◦', '▪', '–', '‣', '\u{f0b7}']) || starts.starts_with("- ")
    {
        return false;
    }
    if last.page != line.page {
        // Over the page only within a sentence.
        let ended = last.text.trim_end().ends_with(['.', '!', '?', ':', '。']);
        return !ended && starts.starts_with(char::is_lowercase);
    }
    let down = last.y - line.y;
    let size = last.size.max(line.size);
    if down.abs() <= size * 0.5 {
        // Cells of one row.
        return true;
    }
    let alike = (last.size - line.size).abs() <= size * 0.1;
    alike && down > 0.0 && down <= size * apart
}

/// A word that was cut at the end of a line is one word again.
fn append_line(text: &mut String, line: &str) {
    let cut = text.ends_with('-')
        && text[..text.len() - 1].ends_with(char::is_lowercase)
        && line.starts_with(char::is_lowercase);
    if text.ends_with('\u{ad}') || cut {
        text.pop();
    } else {
        text.push(' ')
    }
    text.push_str(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(page: u32, y: f64, size: f64, text: &str) -> PdfLine {
        PdfLine { text: text.to_owned(), size, y, page }
    }

    fn check(lines: Vec<PdfLine>, expected: &[(Option<u8>, &str)]) {
        let found = layout_blocks(lines);
        let found: Vec<_> = found.iter().map(|it| (it.level, it.text.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_paragraph_goes_on_over_lines_and_pages_and_its_words_are_whole() {
        check(
            vec![
                line(1, 700.0, 10.0, "The pump is switched off be-"),
                line(1, 688.0, 10.0, "fore the valve is opened, and"),
                line(2, 750.0, 10.0, "never after it."),
                line(2, 720.0, 10.0, "Another one."),
            ],
            &[
                (None, "The pump is switched off before the valve is opened, and never after it."),
                (None, "Another one."),
            ],
        );
    }

    #[test]
    fn what_stands_on_every_page_is_there_once_and_numbers_are_not() {
        let page = |number: u32| {
            let text = format!("What page {} says", ["one", "two", "three"][number as usize - 1]);
            vec![
                line(number, 800.0, 10.0, "The handbook"),
                line(number, 700.0, 10.0, &text),
                line(number, 30.0, 10.0, &number.to_string()),
            ]
        };
        check(
            (1..=3).flat_map(page).collect(),
            &[
                (None, "The handbook"),
                (None, "What page one says"),
                (None, "What page two says"),
                (None, "What page three says"),
            ],
        );
    }

    #[test]
    fn larger_lines_are_headings_by_their_size() {
        check(
            vec![
                line(1, 700.0, 20.0, "Title"),
                line(1, 670.0, 14.0, "Chapter . . . . . 3"),
                line(1, 650.0, 10.0, "Text that is longer than both of them."),
            ],
            &[
                (Some(1), "Title"),
                (Some(2), "Chapter . 3"),
                (None, "Text that is longer than both of them."),
            ],
        );
    }
}
