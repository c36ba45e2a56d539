//! Excerpts: a section of a document, or some characters of it.
//!
//! A long page does not fit into an agent's context. What is left out is said, with
//! how to ask for it.

use std::ops::Range;

use moonlark_core::nearest::nearest_name;
use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Problem, Result, Value};

use crate::knowledge_document::KnowledgeDocument;
use crate::search_query::count_value;
use crate::sync::HEADING_SEPARATOR;

/// Headings that an answer names.
const MAX_NAMED_SECTIONS: usize = 50;

/// Which part of a document. Counts are characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExcerptRequest {
    /// A heading, or several joined by ` > `, the highest first.
    pub section: Option<String>,
    /// Left out at the beginning of the section or document.
    pub offset: Option<usize>,
    pub limit: Option<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DocumentExcerpt {
    /// With just the part as its body, and no chunks.
    pub document: KnowledgeDocument,
    pub offset: usize,
    /// Characters of the section or document in all.
    pub length: usize,
    /// The headings of the document.
    pub sections: Vec<String>,
}

impl KnowledgeDocument {
    /// The part of it that is asked for.
    pub fn into_excerpt(mut self, wanted: &ExcerptRequest) -> Result<DocumentExcerpt> {
        let sections = self.distinct_headings();
        let range = match &wanted.section {
            Some(section) => {
                self.find_section(section).ok_or_else(|| no_section_problem(section, &sections))?
            }
            None => 0..self.body.len(),
        };
        let text = self.body.get(range).unwrap_or_default();
        let length = text.chars().count();
        let offset = wanted.offset.unwrap_or(0);
        if offset > length {
            let whole = if wanted.section.is_some() { "section" } else { "document" };
            return Err(Problem::bad_request(format!(
                "offset is {offset}, and the {whole} has {length} characters"
            )));
        }
        let body = text.chars().skip(offset).take(wanted.limit.unwrap_or(usize::MAX)).collect();
        (self.body, self.chunks) = (body, Vec::new());
        Ok(DocumentExcerpt { document: self, offset, length, sections })
    }

    /// Its headings in order, each once, with those that they are below.
    fn distinct_headings(&self) -> Vec<String> {
        let mut headings: Vec<String> = Vec::new();
        for heading in self.chunks.iter().filter_map(|chunk| chunk.heading.as_ref()) {
            if headings.last() != Some(heading) {
                headings.push(heading.clone());
            }
        }
        // A chunk may be several short sections.
        let is_markdown = self.content_type.as_deref().is_some_and(|it| it.contains("markdown"));
        if is_markdown {
            let own = markdown_headings(&self.body);
            if own.len() > headings.len() {
                return own.into_iter().map(|it| it.path.join(HEADING_SEPARATOR)).collect();
            }
        }
        headings
    }

    /// Which bytes of the body stand under a heading: by the lines of the text, or
    /// by what its chunks are under, which knows headings of other formats too.
    fn find_section(&self, wanted: &str) -> Option<Range<usize>> {
        let parts = wanted.split(HEADING_SEPARATOR).map(strip_heading_marks);
        let path: Vec<String> = parts.map(normalize_heading).collect();
        path.last().filter(|it| !it.is_empty())?;
        find_markdown_section(&self.body, &path).or_else(|| self.find_chunked_section(&path))
    }

    fn find_chunked_section(&self, path: &[String]) -> Option<Range<usize>> {
        let is_under = |heading: &Option<String>| {
            let heading = heading.as_deref().unwrap_or_default();
            let parts: Vec<String> =
                heading.split(HEADING_SEPARATOR).map(normalize_heading).collect();
            parts.windows(path.len()).any(|window| window == path)
        };
        let first = self.chunks.iter().position(|chunk| is_under(&chunk.heading))?;
        let under = self.chunks[first..].iter().take_while(|chunk| is_under(&chunk.heading));
        let ranges: Vec<Range<usize>> =
            under.map(|chunk| chunk.start..chunk.start + chunk.text.len()).collect();
        let end = ranges.iter().map(|it| it.end).max()?;
        Some(ranges.first()?.start..end)
    }
}

/// A line of Markdown that is a heading.
struct MarkdownHeading {
    /// Byte of the text at which the line begins.
    start: usize,
    level: usize,
    /// The headings it is below, then its own words.
    path: Vec<String>,
}

impl MarkdownHeading {
    /// As a path is compared. A heading may have the separator in its own words.
    fn normalized_path(&self) -> Vec<String> {
        self.path.join(HEADING_SEPARATOR).split(HEADING_SEPARATOR).map(normalize_heading).collect()
    }
}

/// In order. Lines within code are none.
fn markdown_headings(body: &str) -> Vec<MarkdownHeading> {
    let mut headings = Vec::new();
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut fenced = false;
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let line = line.trim();
        if line.starts_with("```") || line.starts_with("~~~") {
            fenced = !fenced;
        }
        let level = line.chars().take_while(|it| *it == '#').count();
        if fenced || level == 0 || level > 6 || !line[level..].starts_with(' ') {
            continue;
        }
        while above.last().is_some_and(|(other, _)| *other >= level) {
            above.pop();
        }
        above.push((level, strip_closing_marks(&line[level..]).to_owned()));
        let path = above.iter().map(|(_, words)| words.clone()).collect();
        headings.push(MarkdownHeading { start, level, path });
    }
    headings
}

/// From the heading with that path, or whose path ends so, to the next one that is not
/// below it.
fn find_markdown_section(body: &str, wanted: &[String]) -> Option<Range<usize>> {
    let headings = markdown_headings(body);
    let paths: Vec<Vec<String>> = headings.iter().map(MarkdownHeading::normalized_path).collect();
    let found = paths
        .iter()
        .position(|path| path == wanted)
        .or_else(|| paths.iter().position(|path| path.ends_with(wanted)))?;
    let first = headings.get(found)?;
    let next = headings.iter().skip(found + 1).find(|it| it.level <= first.level);
    Some(first.start..next.map_or(body.len(), |it| it.start))
}

/// `Setup` of `## Setup`, as it is pasted from a text.
fn strip_heading_marks(heading: &str) -> &str {
    let bare = heading.trim().trim_start_matches('#');
    if bare.starts_with(' ') { bare } else { heading }
}

/// `Setup` of `Setup ##`, and `C#` of `C#`.
fn strip_closing_marks(heading: &str) -> &str {
    let heading = heading.trim();
    let open = heading.trim_end_matches('#');
    if open.ends_with(' ') { open.trim_end() } else { heading }
}

/// A heading as it is compared.
fn normalize_heading(heading: &str) -> String {
    let letters = heading.trim().chars().filter(|it| !matches!(it, '`' | '*' | '_'));
    letters.flat_map(char::to_lowercase).collect()
}

fn no_section_problem(wanted: &str, sections: &[String]) -> Problem {
    let names = sections.iter().flat_map(|heading| heading.rsplit(HEADING_SEPARATOR).next());
    let message = format!("the document has no section {}", shorten_text(wanted));
    let near = nearest_name(wanted, names.clone())
        .or_else(|| nearest_name(wanted, sections.iter().map(String::as_str)));
    Problem::bad_request(message).with_hint(match near {
        Some(near) => format!("did you mean {near}?"),
        None if sections.is_empty() => "it has no headings: use offset and limit".to_owned(),
        None => {
            let some: Vec<&str> = names.take(MAX_NAMED_SECTIONS).collect();
            format!("there are {}", some.join(", "))
        }
    })
}

impl DocumentExcerpt {
    /// As [`KnowledgeDocument::to_value`], with what is left out.
    pub fn to_value(&self) -> Value {
        let mut object: Object = match self.document.to_value() {
            Value::Object(object) => object,
            _ => Object::new(),
        };
        object.insert("offset".to_owned(), count_value(self.offset));
        object.insert("length".to_owned(), count_value(self.length));
        let end = self.offset + self.document.body.chars().count();
        if end < self.length {
            let left = self.length - end;
            let rest = format!("{left} more characters: ask again with offset {end}");
            object.insert("rest".to_owned(), rest.into());
            if !self.sections.is_empty() {
                let some = &self.sections[..self.sections.len().min(MAX_NAMED_SECTIONS)];
                object.insert("sections".to_owned(), some.to_vec().into());
            }
        }
        Value::Object(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge_document::DocumentChunk;

    fn document(body: &str, chunks: &[(&str, &str)]) -> KnowledgeDocument {
        let chunk = |(index, (heading, text)): (usize, &(&str, &str))| DocumentChunk {
            index,
            heading: Some((*heading).to_owned()),
            start: body.find(text).unwrap(),
            text: (*text).to_owned(),
        };
        KnowledgeDocument {
            id: "1".to_owned(),
            title: "Deploys".to_owned(),
            body: body.to_owned(),
            chunks: chunks.iter().enumerate().map(chunk).collect(),
            source: "handbook".to_owned(),
            source_id: "deploys.md".to_owned(),
            source_url: None,
            author: None,
            created_at: None,
            updated_at: None,
            content_type: None,
            language: None,
            metadata: Value::Null,
        }
    }

    fn part(
        document: &KnowledgeDocument,
        section: Option<&str>,
        offset: Option<usize>,
        limit: Option<usize>,
    ) -> Result<String> {
        let section = section.map(str::to_owned);
        let excerpt = document.clone().into_excerpt(&ExcerptRequest { section, offset, limit })?;
        let value = excerpt.to_value();
        let rest = value.get("rest").and_then(Value::as_str).unwrap_or_default();
        Ok(format!("{}|{}|{rest}", excerpt.document.body, excerpt.length))
    }

    #[test]
    fn a_part_says_what_is_left_out() {
        let long = document("Grüße an alle", &[]);
        let of = |offset, limit| part(&long, None, offset, limit).unwrap();
        assert_eq!(of(None, Some(5)), "Grüße|13|8 more characters: ask again with offset 5");
        assert_eq!(of(Some(6), Some(100)), "an alle|13|");
        assert_eq!(of(Some(13), None), "|13|");
        let problem = part(&long, None, Some(14), None).unwrap_err();
        assert_eq!(problem.message, "offset is 14, and the document has 13 characters");
    }

    #[test]
    fn a_section_is_found_by_its_heading() {
        let body = "# Deploys\n\nAll.\n\n## Rolling back\n\nUndo.\n\n```\n# no heading\n```\n\n### When\n\nSoon.\n\n## Staging\n\nNights.\n";
        let page = document(body, &[("Deploys", "All."), ("Deploys > Staging", "Nights.")]);
        let section = |name| part(&page, Some(name), None, None);
        let back = section("rolling back").unwrap();
        assert!(back.starts_with("## Rolling back") && back.contains("Soon.\n\n|"), "{back}");
        assert_eq!(section("Deploys > Staging").unwrap(), "## Staging\n\nNights.\n|20|");
        assert!(section("Deploys").unwrap().contains("Nights"));
        let problem = section("Stagings").unwrap_err();
        assert_eq!(problem.hint.as_deref(), Some("did you mean Staging?"));
        assert!(section("").is_err());
    }

    #[test]
    fn a_section_with_its_path_is_not_another_of_the_same_name() {
        let body = "# Guide\n\n## Linux\n\n### Setup\n\nUse apt.\n\n## Windows\n\n### Setup\n\nUse winget.\n\n## C#\n\nUse dotnet.\n";
        let page = document(body, &[("Guide > Linux > Setup", "Use apt.")]);
        let section = |name| part(&page, Some(name), None, None);
        let windows = "### Setup\n\nUse winget.\n\n|24|";
        let paths = [
            "Guide > Windows > Setup",
            "Windows > Setup",
            "windows > setup",
            "## Windows > ### Setup",
            "# Guide > Windows > Setup",
        ];
        for path in paths {
            assert_eq!(section(path).unwrap(), windows, "{path}");
        }
        assert_eq!(section("Linux > Setup").unwrap(), "### Setup\n\nUse apt.\n\n|21|");
        assert_eq!(section("### Setup").unwrap(), section("Linux > Setup").unwrap());
        assert_eq!(section("C#").unwrap(), "## C#\n\nUse dotnet.\n|19|");
        assert!(section("Guide > Setup").is_err());
        assert!(section("## ").is_err());
    }

    #[test]
    fn all_headings_of_a_small_page_of_markdown_are_named() {
        let body = "# Guide\n\n## Linux\n\nApt.\n\n## Windows\n\nWinget.\n";
        let mut page = document(body, &[("Guide", "Apt.")]);
        page.content_type = Some("text/markdown".to_owned());
        let wanted = ExcerptRequest { limit: Some(1), ..ExcerptRequest::default() };
        let excerpt = page.clone().into_excerpt(&wanted).unwrap();
        assert_eq!(excerpt.sections, ["Guide", "Guide > Linux", "Guide > Windows"]);
        let problem = part(&page, Some("Windws"), None, None).unwrap_err();
        assert_eq!(problem.hint.as_deref(), Some("did you mean Windows?"));
    }

    #[test]
    fn headings_of_other_formats_are_found_by_the_chunks_under_them() {
        let page = document(
            "One. Two. Three. Four.",
            &[("A", "One."), ("A > B", "Two."), ("A > B > C", "Three."), ("D", "Four.")],
        );
        let section = |name| part(&page, Some(name), None, None).unwrap();
        assert_eq!(section("B"), "Two. Three.|11|");
        assert_eq!(section("A > B"), "Two. Three.|11|");
        assert_eq!(section("d"), "Four.|5|");
    }
}
