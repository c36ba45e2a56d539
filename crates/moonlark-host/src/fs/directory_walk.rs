//! Directory walk and globs.

use cap_std::fs::Dir;
use globset::{GlobBuilder, GlobMatcher};
use moonlark_core::{Problem, Result};

use super::confined_dir::ConfinedDir;

const MAX_LISTED_ENTRIES: usize = 10_000;
/// A tree is looked at no further than this, whatever of it matches.
const MAX_VISITED_ENTRIES: usize = 200_000;
const MAX_WALK_DEPTH: usize = 64;
const MAX_GLOB_BYTES: usize = 1000;

/// The names in `at`, or the paths below it that match `glob`, relative to it;
/// sorted.
pub(super) fn list_paths(
    confined: &ConfinedDir,
    at: &str,
    glob: Option<&str>,
) -> Result<Vec<String>> {
    // Each name of a glob matches one name, unless ** is there.
    let deepest = match glob {
        None => 0,
        Some(glob) if glob.contains("**") => MAX_WALK_DEPTH,
        Some(glob) => glob.matches('/').count(),
    };
    let glob = glob.map(compile_glob).transpose()?;
    let mut walk = DirectoryWalk { confined, at, glob, deepest, visited: 0, found: Vec::new() };
    walk.visit_directory(&confined.open_subdirectory(at)?, "", 0)?;
    walk.found.sort_unstable();
    Ok(walk.found)
}

fn compile_glob(glob: &str) -> Result<GlobMatcher> {
    if glob.len() > MAX_GLOB_BYTES {
        return Err(Problem::bad_request(format!(
            "the glob is longer than {MAX_GLOB_BYTES} bytes"
        )));
    }
    let built = GlobBuilder::new(glob).literal_separator(true).build();
    built
        .map(|glob| glob.compile_matcher())
        .map_err(|error| Problem::bad_request(format!("the glob is not valid: {}", error.kind())))
}

struct DirectoryWalk<'a> {
    confined: &'a ConfinedDir,
    at: &'a str,
    /// None takes everything.
    glob: Option<GlobMatcher>,
    deepest: usize,
    visited: usize,
    found: Vec<String>,
}

impl DirectoryWalk<'_> {
    fn visit_directory(&mut self, dir: &Dir, prefix: &str, depth: usize) -> Result<()> {
        let (confined, at) = (self.confined, self.at);
        let explain = |error: std::io::Error| confined.explain_io_error(at, &error);
        for entry in dir.entries().map_err(explain)? {
            let entry = entry.map_err(explain)?;
            self.visited += 1;
            let name = entry.file_name();
            // No script can name such a file, so none is told of it.
            let Some(name) = name.to_str() else { continue };
            let path = format!("{prefix}{name}");
            if self.glob.as_ref().is_none_or(|glob| glob.is_match(&path)) {
                self.found.push(path.clone());
            }
            self.check_walk_limits()?;
            // A link to a directory is listed but not entered: it may lead back.
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir && depth < self.deepest {
                // One that is gone or closed to us takes nothing from the rest.
                if let Ok(below) = entry.open_dir() {
                    self.visit_directory(&below, &format!("{path}/"), depth + 1)?;
                }
            }
        }
        Ok(())
    }

    fn check_walk_limits(&self) -> Result<()> {
        let over = match self {
            _ if self.found.len() > MAX_LISTED_ENTRIES => {
                format!("more than {MAX_LISTED_ENTRIES} results")
            }
            _ if self.visited > MAX_VISITED_ENTRIES => {
                format!("more than {MAX_VISITED_ENTRIES} files to look at")
            }
            _ => return Ok(()),
        };
        Err(Problem::limit_exceeded(over)
            .with_hint("list a smaller directory, or use a narrower glob"))
    }
}
