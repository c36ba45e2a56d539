//! Links between Markdown files: the file is there, and so is the heading.

use std::collections::BTreeMap;

use super::Finding;
use crate::repo::{self, File};

pub(super) fn resolve(files: &[File]) -> Vec<Finding> {
    let pages: BTreeMap<&str, &File> =
        files.iter().filter(|file| file.is(".md")).map(|file| (file.path.as_str(), file)).collect();
    let mut findings = Vec::new();
    for page in pages.values() {
        for (line, target) in targets(&page.text) {
            if let Some(what) = broken(page, target, &pages) {
                findings.push(Finding::new(&page.path, line, what, "link to what is there"));
            }
        }
    }
    findings
}

fn broken(page: &File, target: &str, pages: &BTreeMap<&str, &File>) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { page.path.clone() } else { join(&page.path, path) };
    if !repo::root().join(&path).exists() && !pages.contains_key(path.as_str()) {
        return Some(format!("the link to {target} leads nowhere"));
    }
    let known = pages.get(path.as_str())?;
    let missing = !anchor.is_empty() && !anchors(&known.text).iter().any(|known| known == anchor);
    missing.then(|| format!("{path} has no heading #{anchor}"))
}

/// The path of a link, from the root.
fn join(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The targets of `[text](target)`, each with its line.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (line, text) in outside_code(text) {
        let mut rest = text;
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else { break };
            found.push((line, target));
            rest = after;
        }
    }
    found
}

fn anchors(text: &str) -> Vec<String> {
    outside_code(text)
        .filter_map(|(_, line)| Some(line.strip_prefix('#')?.trim_start_matches('#').trim()))
        .map(slug)
        .collect()
}

/// As GitHub makes an anchor of a heading.
fn slug(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn outside_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    text.lines().enumerate().map(|(index, line)| (index + 1, line)).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_needs_its_file_and_its_heading() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(
                "docs/a.md",
                "# One `two`: three\n[x](b.md) [y](#one-two-three) [z](#none)\n```\n[c](gone)\n```\n",
            ),
            file("docs/b.md", "[up](../README.md#top) [gone](c.md) [web](https://example.com)"),
            file("README.md", "## Top"),
        ];
        let found: Vec<String> = resolve(&files).iter().map(Finding::shown).collect();
        assert_eq!(
            found,
            [
                "docs/a.md:2: docs/a.md has no heading #none\n    link to what is there",
                "docs/b.md:1: the link to c.md leads nowhere\n    link to what is there",
            ]
        );
    }
}
