//! Where `require("…")` leads: always into the script's folder.

use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, Result};

/// Longest path; the rest of a longer one would only fill messages.
const MAX_REQUIRE_PATH_BYTES: usize = 1024;

/// The files that `path` may mean in `from`, the first one that is there wins.
/// All are relative to the script's folder.
pub(crate) fn resolve_require(from: &str, path: &str) -> Result<Vec<String>> {
    let bad = |why: &str| {
        Problem::bad_script(format!("require({:?}) {why}", shorten_text(path))).with_hint(
            "require .luau and .lua files of the script's own folder: require(\"./lib/text\")",
        )
    };
    if path.starts_with('/')
        || path.contains(['\\', '\0', ':'])
        || path.len() > MAX_REQUIRE_PATH_BYTES
    {
        return Err(bad("is not a path inside the script's folder"));
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    let mut name = None;
    for part in path.split('/') {
        match part {
            "" => return Err(bad("is not a path")),
            "." | ".." => {
                name = None;
                if part == ".." {
                    parts.pop().ok_or_else(|| bad("leads out of the script's folder"))?;
                }
            }
            part => {
                name = Some(part);
                parts.push(part);
            }
        }
    }
    let Some(name) = name else { return Err(bad("does not name a file")) };
    let file = parts.join("/");
    match name.rsplit_once('.') {
        None => Ok(vec![format!("{file}.luau"), format!("{file}.lua")]),
        Some((stem, "luau" | "lua")) if !stem.is_empty() => Ok(vec![file]),
        Some(_) => Err(bad("does not name a .luau or .lua file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requires_stay_inside_the_folder() {
        for (from, path, expected) in [
            ("a.lua", "./b.lua", Some("b.lua")),
            ("a.lua", "b.luau", Some("b.luau")),
            ("a.lua", "b", Some("b.luau b.lua")),
            ("a.lua", "./lib/b", Some("lib/b.luau lib/b.lua")),
            ("lib/a.lua", "b", Some("lib/b.luau lib/b.lua")),
            ("lib/a.lua", "../b.lua", Some("b.lua")),
            ("lib/a.lua", "../lib/./b.lua", Some("lib/b.lua")),
            ("a.lua", "..b/c.lua", Some("..b/c.lua")),
            ("a.lua", "@self", Some("@self.luau @self.lua")),
            ("a.lua", "../b", None),
            ("lib/a.lua", "../../b", None),
            ("a.lua", "lib/../../b", None),
            ("a.lua", "/etc/b.lua", None),
            ("a.lua", "//b.lua", None),
            ("a.lua", "lib//b", None),
            ("a.lua", "b.json", None),
            ("a.lua", "b.lua.txt", None),
            ("a.lua", "b.", None),
            ("a.lua", ".lua", None),
            ("a.lua", "", None),
            ("a.lua", ".", None),
            ("lib/a.lua", "..", None),
            ("a.lua", "lib/.", None),
            ("a.lua", "b/", None),
            ("a.lua", "c:b", None),
            ("a.lua", "..\\b", None),
            ("a.lua", "b\0", None),
        ] {
            let found = resolve_require(from, path).ok().map(|files| files.join(" "));
            assert_eq!(found.as_deref(), expected, "{from} {path}");
        }
        assert!(resolve_require("a.lua", &"x/".repeat(600)).is_err());
        assert_eq!(
            resolve_require("a.lua", "../b").unwrap_err().to_string(),
            "error[bad_script]: require(\"../b\") leads out of the script's folder\nhint: require .luau and .lua files of the script's own folder: require(\"./lib/text\")"
        );
    }
}
