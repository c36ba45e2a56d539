//! Include and exclude globs of a source.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use moonlark_core::{Problem, Result, SourceLocation};

/// Bytes of a pattern, and patterns of one source.
const MAX_GLOB_BYTES: usize = 1000;
const MAX_GLOBS: usize = 1000;

#[derive(Debug, Clone)]
pub(crate) struct PathGlobs {
    /// None takes everything.
    include: Option<GlobSet>,
    exclude: GlobSet,
}

impl PathGlobs {
    /// `place` is the configuration key above them.
    pub(crate) fn new(place: &str, include: &[String], exclude: &[String]) -> Result<PathGlobs> {
        let all = |key: &str, globs: &[String]| {
            build_glob_set(globs).map_err(|problem| {
                problem.at_location(SourceLocation::in_file(format!("{place}.{key}")))
            })
        };
        let include = match include {
            [] => None,
            some => Some(all("include", some)?),
        };
        Ok(PathGlobs { include, exclude: all("exclude", exclude)? })
    }

    /// Of a file, as a path below the root with `/` between names.
    pub(crate) fn is_included(&self, path: &str) -> bool {
        self.include.as_ref().is_none_or(|globs| globs.is_match(path)) && !self.is_excluded(path)
    }

    /// Also of a folder: nothing below it is taken.
    pub(crate) fn is_excluded(&self, path: &str) -> bool {
        self.exclude.is_match(path)
    }
}

fn build_glob_set(globs: &[String]) -> Result<GlobSet> {
    let mut set = GlobSetBuilder::new();
    if globs.len() > MAX_GLOBS {
        return Err(Problem::bad_config(format!("there are more than {MAX_GLOBS} patterns")));
    }
    for glob in globs {
        let wrong = |why: String| {
            Problem::bad_config(format!("the pattern {glob:?} is not valid: {why}"))
                .with_hint("write patterns such as \"*.md\", \"docs/**/*.txt\" or \"drafts/\"")
        };
        if glob.len() > MAX_GLOB_BYTES {
            return Err(Problem::bad_config(format!(
                "a pattern is longer than {MAX_GLOB_BYTES} bytes"
            )));
        }
        let plain = glob.trim_start_matches("./").trim_start_matches('/').trim_end_matches('/');
        // As in ignore files: a name without a slash is found anywhere.
        let anywhere = !glob.trim_end_matches('/').contains('/');
        let plain = if anywhere { format!("**/{plain}") } else { plain.to_owned() };
        // What a folder holds is meant with it.
        for pattern in [plain.clone(), format!("{plain}/**")] {
            let built = GlobBuilder::new(&pattern).literal_separator(true).build();
            set.add(built.map_err(|error| wrong(error.kind().to_string()))?);
        }
    }
    set.build().map_err(|error| Problem::bad_config(format!("the patterns are not valid: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(include: &[&str], exclude: &[&str], path: &str) -> bool {
        let owned = |globs: &[&str]| globs.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        PathGlobs::new("x", &owned(include), &owned(exclude)).unwrap().is_included(path)
    }

    #[test]
    fn patterns_mean_what_they_mean_in_ignore_files() {
        assert!(takes(&[], &[], "a/b.md"));
        assert!(takes(&["*.md"], &[], "a/b.md"));
        assert!(!takes(&["*.md"], &[], "a/b.txt"));
        assert!(takes(&["docs/*.md"], &[], "docs/b.md"));
        assert!(!takes(&["docs/*.md"], &[], "docs/a/b.md"));
        assert!(!takes(&["docs/*.md"], &[], "a/docs/b.md"));
        assert!(takes(&["docs/**/*.md"], &[], "docs/a/b.md"));
        assert!(takes(&["docs"], &[], "docs/a/b.md"));
        assert!(takes(&["/docs/"], &[], "docs/a/b.md"));
        assert!(takes(&["./docs/guide"], &[], "docs/guide/b.md"));
        assert!(!takes(&["*.md"], &["drafts/"], "a/drafts/b.md"));
        assert!(!takes(&[], &["**/secret*"], "a/secret.txt"));
    }

    #[test]
    fn a_wrong_pattern_is_named_with_its_key() {
        let problem = PathGlobs::new("connectors.filesystem.docs", &["[".into()], &[]).unwrap_err();
        assert_eq!(&*problem.place.unwrap().file, "connectors.filesystem.docs.include");
        assert!(problem.message.contains("\"[\""), "{}", problem.message);
    }
}
