//! Which paths a source takes: those of `include` without those of `exclude`.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use moonlark_core::{Place, Problem, Result};

/// Bytes of a pattern, and patterns of one source.
const LONGEST: usize = 1000;
const MOST: usize = 1000;

#[derive(Debug, Clone)]
pub(crate) struct Globs {
    /// None takes everything.
    include: Option<GlobSet>,
    exclude: GlobSet,
}

impl Globs {
    /// `place` is the configuration key above them.
    pub(crate) fn new(place: &str, include: &[String], exclude: &[String]) -> Result<Globs> {
        let all = |key: &str, globs: &[String]| {
            set(globs).map_err(|problem| problem.at(Place::file(format!("{place}.{key}"))))
        };
        let include = match include {
            [] => None,
            some => Some(all("include", some)?),
        };
        Ok(Globs { include, exclude: all("exclude", exclude)? })
    }

    /// Of a file, as a path below the root with `/` between names.
    pub(crate) fn takes(&self, path: &str) -> bool {
        self.include.as_ref().is_none_or(|globs| globs.is_match(path)) && !self.leaves_out(path)
    }

    /// Also of a folder: nothing below it is taken.
    pub(crate) fn leaves_out(&self, path: &str) -> bool {
        self.exclude.is_match(path)
    }
}

fn set(globs: &[String]) -> Result<GlobSet> {
    let mut set = GlobSetBuilder::new();
    if globs.len() > MOST {
        return Err(Problem::bad_config(format!("there are more than {MOST} patterns")));
    }
    for glob in globs {
        let wrong = |why: String| {
            Problem::bad_config(format!("the pattern {glob:?} is not valid: {why}"))
                .hint("write patterns such as \"*.md\", \"docs/**/*.txt\" or \"drafts/\"")
        };
        if glob.len() > LONGEST {
            return Err(Problem::bad_config(format!("a pattern is longer than {LONGEST} bytes")));
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
        Globs::new("x", &owned(include), &owned(exclude)).unwrap().takes(path)
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
        let problem = Globs::new("connectors.filesystem.docs", &["[".into()], &[]).unwrap_err();
        assert_eq!(&*problem.place.unwrap().file, "connectors.filesystem.docs.include");
        assert!(problem.message.contains("\"[\""), "{}", problem.message);
    }
}
