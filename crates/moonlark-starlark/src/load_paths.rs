//! Where `load("…")` leads: always into the extensions folder.

use moonlark_core::{Problem, Result};

/// The file that `path` means in `from`, relative to the extensions folder.
/// `//` starts at that folder, anything else beside `from`.
pub fn resolve_load(from: &str, path: &str) -> Result<String> {
    let bad = |why: &str| {
        Problem::bad_script(format!("load({path:?}) {why}"))
            .with_hint("load files of the extensions folder: load(\"other.star\", \"name\")")
    };
    let (folder, rest) = match path.strip_prefix("//") {
        Some(rest) => ("", rest),
        None => (from.rsplit_once('/').map_or("", |(folder, _)| folder), path),
    };
    let parts = resolve_parts(folder, rest, "leads out of the extensions folder", bad)?;
    let written = rest.split('/').next_back().unwrap_or_default();
    // `load("other", …)` means other.star.
    if !written.is_empty() && !written.contains('.') {
        return Ok(format!("{}.star", parts.join("/")));
    }
    if !parts.last().is_some_and(|name| name.len() > 5 && name.ends_with(".star")) {
        return Err(bad("does not name a .star file"));
    }
    Ok(parts.join("/"))
}

/// The JSON file that `data.load_json(path)` means: from the extensions folder
/// on, whichever file asks.
pub(crate) fn resolve_data(path: &str) -> Result<String> {
    let bad = |why: &str| {
        Problem::denied(format!("data.load_json: {path:?} {why}"))
            .with_hint("name a file of the extensions folder: data.load_json(\"items.json\")")
    };
    let rest = path.strip_prefix("//").unwrap_or(path);
    let parts = resolve_parts("", rest, "would leave the extensions folder", bad)?;
    if !parts.last().is_some_and(|name| name.ends_with(".json")) {
        return Err(bad("does not name a .json file"));
    }
    Ok(parts.join("/"))
}

/// The folders and the file that `path` means beside the files of `folder`.
fn resolve_parts<'a>(
    folder: &'a str,
    path: &'a str,
    outside: &str,
    bad: impl Fn(&str) -> Problem,
) -> Result<Vec<&'a str>> {
    if path.starts_with('/') || path.contains(['\\', '\0', ':']) {
        return Err(bad("is not a path inside the extensions folder"));
    }
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" => return Err(bad("is not a path")),
            "." => {}
            ".." => {
                parts.pop().ok_or_else(|| bad(outside))?;
            }
            part => parts.push(part),
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_stay_inside_the_folder() {
        for (from, path, expected) in [
            ("a.star", "b.star", Some("b.star")),
            ("a.star", "lib/b.star", Some("lib/b.star")),
            ("lib/a.star", "b.star", Some("lib/b.star")),
            ("lib/a.star", "./b.star", Some("lib/b.star")),
            ("lib/a.star", "../b.star", Some("b.star")),
            ("lib/a.star", "//b.star", Some("b.star")),
            ("a.star", "b", Some("b.star")),
            ("lib/a.star", "../b", Some("b.star")),
            ("a.star", "//lib/b", Some("lib/b.star")),
            ("a.star", "..", None),
            ("a.star", "../b.star", None),
            ("a.star", "lib/../../b.star", None),
            ("a.star", "//../b.star", None),
            ("a.star", "/etc/b.star", None),
            ("a.star", "///etc/b.star", None),
            ("a.star", "b.lua", None),
            ("a.star", ".star", None),
            ("a.star", "", None),
            ("a.star", "b.star/", None),
            ("a.star", "c:b.star", None),
            ("a.star", "..\\b.star", None),
            ("a.star", "b\0.star", None),
        ] {
            assert_eq!(resolve_load(from, path).ok().as_deref(), expected, "{from} {path}");
        }
        assert_eq!(
            resolve_load("a.star", "../b.star").unwrap_err().to_string(),
            "error[bad_script]: load(\"../b.star\") leads out of the extensions folder\nhint: load files of the extensions folder: load(\"other.star\", \"name\")"
        );
    }
}
