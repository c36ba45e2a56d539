//! What chunks are, and that nothing is missing from them.

use super::*;
use crate::extract::{ExtractLimits, ExtractionOutcome, extract_document};
use crate::source_connector::{ItemContent, SourceItem};

fn document(name: &str, text: &str) -> Option<ExtractedDocument> {
    let item = SourceItem {
        source_id: name.to_owned(),
        content: ItemContent::Text(text.to_owned()),
        ..SourceItem::default()
    };
    match extract_document(&item, &ExtractLimits::default()).unwrap() {
        ExtractionOutcome::Text(extracted) => Some(*extracted),
        ExtractionOutcome::Skipped(_) => None,
    }
}

fn chunks(name: &str, text: &str) -> Vec<TextChunk> {
    split_into_chunks(&document(name, text).unwrap(), &ChunkSettings::default())
}

/// One line per chunk: its headings and how its text begins and ends.
fn outline(chunks: &[TextChunk]) -> String {
    let mut out = String::new();
    for chunk in chunks {
        let text = chunk.text.replace('\n', "⏎");
        let short: String = match text.chars().count() {
            ..=60 => text,
            many => {
                let start: String = text.chars().take(25).collect();
                let end: String = text.chars().skip(many - 25).collect();
                format!("{start}…{end}")
            }
        };
        let cut = if chunk.cut { " cut" } else { "" };
        out.push_str(&format!("[{}]{cut} {short}\n", chunk.heading.join(" > ")));
    }
    out
}

fn sentence(number: usize) -> String {
    format!("Sentence number {number} says something about pumps and valves. ")
}

fn prose(sentences: usize) -> String {
    (0..sentences).map(sentence).collect::<String>().trim_end().to_owned()
}

#[test]
fn a_chunk_stays_within_its_section_and_knows_its_headings() {
    let (a, b) = (prose(8), prose(9));
    let text = format!("# Pumps\n\n## North\n\n{a}\n\n## South\n\n{b}\n\n### Deep\n\n{a}\n");
    let chunks = chunks("a.md", &text);
    let headings: Vec<String> = chunks.iter().map(|chunk| chunk.heading.join(" > ")).collect();
    assert_eq!(headings, ["Pumps > North", "Pumps > South", "Pumps > South > Deep"]);
    // A heading with nothing below it but another one goes with that.
    assert_eq!(chunks[0].text, format!("# Pumps\n\n## North\n\n{a}"));
    assert_eq!(chunks[1].text, format!("## South\n\n{b}"));
    assert!(chunks.iter().all(|chunk| !chunk.cut));
}

#[test]
fn tiny_sections_share_a_chunk() {
    let text = "# FAQ\n\n## Who?\n\nWe.\n\n## When?\n\nNow.\n\n## Why?\n\nBecause.\n";
    assert_eq!(
        outline(&chunks("a.md", text)),
        "[FAQ] # FAQ⏎⏎## Who?⏎⏎We.⏎⏎## When?⏎⏎Now.⏎⏎## Why?⏎⏎Because.\n"
    );
    // A tiny one beside a large one does not.
    let text = format!("# A\n\nshort\n\n# B\n\n{}\n", prose(10));
    let found = chunks("a.md", &text);
    assert_eq!(found[0].text, "# A\n\nshort");
    assert_eq!(found[1].heading, ["B"]);
}

#[test]
fn blocks_stay_whole_up_to_the_maximum() {
    let code = format!("```\n{}```", "let x = 1;\n".repeat(140));
    assert!(code.len() > 1500 && code.len() < 2000);
    let text = format!("# A\n\nThe following does it:\n\n{code}\n\nDone.\n\n{}", prose(10));
    let found = chunks("a.md", &text);
    assert_eq!(found[0].text, format!("# A\n\nThe following does it:\n\n{code}"));
    assert!(found[1].text.starts_with("Done.\n\nSentence number 0"));
    assert!(found.iter().all(|chunk| !chunk.cut));
}

#[test]
fn a_long_paragraph_is_cut_between_sentences_with_a_little_overlap() {
    let found = chunks("a.txt", &prose(60));
    assert!(found.len() >= 3);
    for (number, chunk) in found.iter().enumerate() {
        assert!(chunk.cut);
        assert!(chunk.text.len() <= 2000, "{}", chunk.text.len());
        assert!(chunk.text.starts_with("Sentence") && chunk.text.ends_with('.'), "{chunk:?}");
        if let Some(next) = found.get(number + 1) {
            let shared = chunk.range.end.saturating_sub(next.range.start);
            assert!((1..=150).contains(&shared), "{shared}");
        }
    }
}

#[test]
fn text_without_spaces_is_cut_at_its_own_marks() {
    let text = "先关闭水泵，然后打开阀门。".repeat(200);
    let found = chunks("a.txt", &text);
    assert!(found.len() > 5);
    for chunk in &found {
        assert!(chunk.text.starts_with('先') && chunk.text.ends_with('。'), "{}", chunk.text);
    }
    let endless = "水".repeat(5000);
    assert!(chunks("a.txt", &endless).iter().all(|chunk| chunk.text.len() <= 2000));
}

#[test]
fn long_code_is_cut_between_lines_and_keeps_its_name() {
    let body: String = (0..200).map(|n| format!("    let value_{n} = compute({n});\n")).collect();
    let text = format!("use a;\n\nfn long() {{\n{body}}}\n");
    let found = chunks("a.rs", &text);
    assert!(found.len() > 3);
    for chunk in &found[1..] {
        assert_eq!(chunk.heading, ["fn long()"]);
        assert!(chunk.cut);
    }
    assert!(found[2].text.starts_with("    let value_"), "{}", found[2].text);
}

#[test]
fn a_long_table_is_cut_between_rows() {
    let rows: String = (0..300).map(|n| format!("{n},north,{n} bar\n")).collect();
    for chunk in chunks("a.csv", &rows) {
        assert!(chunk.text.ends_with("bar"), "{}", chunk.text);
        let first = chunk.text.lines().next().unwrap();
        assert_eq!(first.split(',').count(), 3);
    }
}

#[test]
fn nothing_is_lost_or_empty_whatever_the_text() {
    let words = [
        "pump",
        "ventil.",
        "# h\n",
        "## i\n",
        "- item\n",
        "```\n",
        "\n\n",
        "\n",
        "水泵。",
        "|a|b|\n",
        " ",
        "    ",
        "x".repeat(90).leak(),
        "Ende!",
        "\t",
        "1. z\n",
        "\u{301}",
        "🦀",
    ];
    let mut random = 3_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % below
    };
    for round in 0..600 {
        let text: String = (0..next(400)).map(|_| words[next(words.len())]).collect();
        let settings = match round % 3 {
            0 => ChunkSettings::default(),
            1 => ChunkSettings { target: 100, most: 150, overlap: 20 },
            _ => ChunkSettings { target: 0, most: 0, overlap: 1000 },
        };
        for name in ["a.md", "a.txt", "a.rs"] {
            let Some(document) = document(name, &text) else { continue };
            let chunks = split_into_chunks(&document, &settings);
            let mut covered = 0;
            for chunk in &chunks {
                assert_eq!(chunk.text, &document.text[chunk.range.clone()]);
                assert!(!chunk.text.trim().is_empty());
                assert!(
                    chunk.text.len() <= settings.with_clamped_sizes().most,
                    "{}",
                    chunk.text.len()
                );
                if let Some(gap) = document.text.get(covered..chunk.range.start) {
                    assert!(gap.trim().is_empty(), "lost {gap:?} of {text:?}");
                }
                assert!(chunk.range.end > covered, "a step back in {text:?}");
                covered = chunk.range.end;
            }
            assert!(document.text[covered..].trim().is_empty(), "lost the end of {text:?}");
            assert_eq!(chunks, chunk_again(&document, &settings));
        }
    }
}

fn chunk_again(document: &ExtractedDocument, settings: &ChunkSettings) -> Vec<TextChunk> {
    split_into_chunks(&document.clone(), settings)
}

#[test]
fn a_line_of_twenty_megabytes_is_cut_in_time() {
    for text in ["x".repeat(20 << 20), "ab ".repeat(1 << 20), "{\"a\":1},".repeat(1 << 18)] {
        let started = std::time::Instant::now();
        let chunks = chunks("a.json", &text);
        assert!(chunks.len() > 1_500);
        // A hang guard: it takes a fraction of a second.
        assert!(started.elapsed().as_secs() < 30);
    }
}
