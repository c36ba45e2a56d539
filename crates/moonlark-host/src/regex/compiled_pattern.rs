//! Compiled patterns, kept for the next call, and what they may cost.
//!
//! A search takes time in proportion to the text times the pattern, and a
//! script can make both large; going through all matches can take the square of
//! the text. Neither can be interrupted from outside, so the first is bounded
//! before it starts and the second is looked at between matches.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use moonlark_core::limits::{format_seconds, format_size};
use moonlark_core::{Problem, Result};
use moonlark_gateway::Call;
use parking_lot::Mutex;
use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Hir, HirKind};
use regex_syntax::{Error, ParserBuilder};
use tokio::time::Instant;

/// Longer patterns are not written but generated, and a class of five bytes can
/// take kilobytes while it is compiled.
const MAX_PATTERN_BYTES: usize = 32 * 1024;
const MAX_PATTERN_NESTING: u32 = 100;
/// Of the compiled pattern, and of what it remembers between searches.
const MAX_COMPILED_PATTERN_BYTES: usize = 1024 * 1024;
const MAX_DFA_CACHE_BYTES: usize = 512 * 1024;
/// Classes such as `\pL`, which take kilobytes each before anything is compiled.
const MAX_CLASS_ESCAPES: usize = 500;
/// Every group is carried along with every step.
const MAX_PATTERN_GROUPS: usize = 100;
/// Groups with which the compiled pattern may have its full size: what finding
/// them takes is one times the other.
const FULL_SIZE_GROUPS: usize = 8;
/// Bytes of text times steps of the pattern. Nearly every pattern looks at a
/// byte once, not once per step; for the worst this is a fifth of a second.
const MAX_SEARCH_WORK: usize = 20_000_000;
/// How long one call may go through matches.
const MAX_MATCHING_TIME: Duration = Duration::from_millis(150);
const MAX_CACHED_PATTERNS: usize = 128;
/// A larger pattern is not kept: with what it remembers it can take megabytes for
/// each thread that has used it.
const MAX_CACHED_PATTERN_STEPS: usize = 256;

#[derive(Debug)]
pub(super) struct CompiledPattern {
    regex: Regex,
    /// Words and classes, repetitions written out.
    steps: usize,
    /// The same where groups are to be found: each has a beginning and an end,
    /// and all of them are copied from step to step.
    capture_steps: usize,
}

static PATTERN_CACHE: LazyLock<Mutex<HashMap<String, Arc<CompiledPattern>>>> =
    LazyLock::new(Mutex::default);

impl CompiledPattern {
    /// The compiled form of `source`, from an earlier call if there was one.
    pub(super) fn get_or_compile(source: &str) -> Result<Arc<CompiledPattern>> {
        if let Some(pattern) = PATTERN_CACHE.lock().get(source) {
            return Ok(pattern.clone());
        }
        let pattern = Arc::new(CompiledPattern::compile(source)?);
        if pattern.capture_steps > MAX_CACHED_PATTERN_STEPS {
            return Ok(pattern);
        }
        let mut cache = PATTERN_CACHE.lock();
        if cache.len() >= MAX_CACHED_PATTERNS {
            cache.clear();
        }
        cache.insert(source.to_owned(), pattern.clone());
        Ok(pattern)
    }

    fn compile(source: &str) -> Result<CompiledPattern> {
        let too_large = || {
            Problem::bad_request("the pattern is too large")
                .with_hint("use smaller repetition counts, or split the pattern")
        };
        let classes = source.as_bytes().windows(2);
        let classes = classes.filter(|it| it[0] == b'\\' && b"pPwWdDsS".contains(&it[1]));
        if source.len() > MAX_PATTERN_BYTES || classes.count() > MAX_CLASS_ESCAPES {
            return Err(too_large());
        }
        let hir = ParserBuilder::new()
            .nest_limit(MAX_PATTERN_NESTING)
            .build()
            .parse(source)
            .map_err(|error| invalid_pattern_problem(&error))?;
        let groups = hir.properties().explicit_captures_len();
        if groups > MAX_PATTERN_GROUPS {
            let message =
                format!("the pattern has {groups} groups, more than {MAX_PATTERN_GROUPS}");
            return Err(Problem::bad_request(message)
                .with_hint("write (?:…) for groups that are not looked at"));
        }
        let regex = RegexBuilder::new(source)
            .nest_limit(MAX_PATTERN_NESTING)
            .size_limit(MAX_COMPILED_PATTERN_BYTES / groups.div_ceil(FULL_SIZE_GROUPS).max(1))
            .dfa_size_limit(MAX_DFA_CACHE_BYTES)
            .build()
            .map_err(|_| too_large())?;
        let steps = count_steps(&hir);
        let capture_steps = steps.saturating_add(2 * groups).saturating_mul(1 + groups / 4);
        Ok(CompiledPattern { regex, steps, capture_steps })
    }

    /// The expression, once it is known that it may be run over `text`.
    pub(super) fn regex_for(&self, text: &str) -> Result<&Regex> {
        self.check_search_work(text, self.steps)
    }

    /// The same for finding groups.
    pub(super) fn regex_for_captures(&self, text: &str) -> Result<&Regex> {
        self.check_search_work(text, self.capture_steps)
    }

    fn check_search_work(&self, text: &str, steps: usize) -> Result<&Regex> {
        if text.len().saturating_mul(steps) > MAX_SEARCH_WORK {
            return Err(Problem::limit_exceeded(format!(
                "the pattern has {steps} steps, which is too much work for a text of {}",
                format_size(text.len())
            ))
            .with_hint("use smaller repetition counts, or search the text in pieces"));
        }
        Ok(&self.regex)
    }
}

fn count_steps(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty => 0,
        HirKind::Look(_) => 1,
        // Plain text is searched in one go, however long it is.
        HirKind::Literal(literal) => 1 + literal.0.len() / 16,
        HirKind::Class(_) => 1,
        HirKind::Capture(capture) => count_steps(&capture.sub),
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            count_steps(&repetition.sub).max(1).saturating_mul(times as usize)
        }
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(count_steps).fold(0, usize::saturating_add)
        }
    }
}

fn invalid_pattern_problem(error: &Error) -> Problem {
    let (why, column) = match error {
        Error::Parse(error) => (error.kind().to_string(), error.span().start.column),
        Error::Translate(error) => (error.kind().to_string(), error.span().start.column),
        _ => ("it cannot be read".to_owned(), 1),
    };
    let problem =
        Problem::bad_request(format!("the pattern is not valid: {why}, at character {column}"));
    if why.starts_with("look-around") {
        problem.with_hint("match the surroundings too and take a group with regex.captures")
    } else {
        problem
    }
}

/// Ends a walk over matches that takes too long.
pub(super) struct MatchTimeLimit {
    end: Instant,
}

impl MatchTimeLimit {
    pub(super) fn start(call: &Call) -> MatchTimeLimit {
        MatchTimeLimit { end: call.deadline().min(Instant::now() + MAX_MATCHING_TIME) }
    }

    pub(super) fn check_time(&mut self) -> Result<()> {
        if Instant::now() < self.end {
            return Ok(());
        }
        Err(Problem::limit_exceeded(format!(
            "the matches take longer than {}",
            format_seconds(MAX_MATCHING_TIME)
        ))
        .with_hint("use a pattern that does not read far ahead, or search the text in pieces"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(pattern: &str) -> usize {
        CompiledPattern::compile(pattern).unwrap().steps
    }

    #[test]
    fn steps_count_what_repetition_writes_out() {
        assert_eq!(count(r"\w+@\w+\.com"), 4);
        assert_eq!(count("a{3}"), 3);
        assert_eq!(count("(?:a{3}|[xy]){2,10}"), 40);
        assert_eq!(count("^$"), 2);
    }

    #[test]
    fn a_pattern_that_would_grow_is_refused() {
        for source in
            [r"((a{1000}){1000}){1000}", r"(?i)\pL{1000}", &"a".repeat(40_000), &r"\pL".repeat(501)]
        {
            assert_eq!(
                CompiledPattern::compile(source).unwrap_err().message,
                "the pattern is too large"
            );
        }
        let deep = format!("{}{}", "(".repeat(1000), ")".repeat(1000));
        assert!(CompiledPattern::compile(&deep).unwrap_err().message.contains("nested"));
    }

    #[test]
    fn too_much_work_is_refused_before_it_starts() {
        let pattern = CompiledPattern::compile("(?:[ab]*a[ab]{1000})").unwrap();
        assert!(pattern.regex_for(&"a".repeat(10_000)).is_ok());
        let grouped = CompiledPattern::compile(&"(a)?".repeat(100)).unwrap();
        assert!(grouped.regex_for(&"a".repeat(100_000)).is_ok());
        assert!(grouped.regex_for_captures(&"a".repeat(10_000)).is_err());
        let problem = pattern.regex_for(&"a".repeat(1024 * 1024)).unwrap_err();
        assert_eq!(
            problem.message,
            "the pattern has 1002 steps, which is too much work for a text of 1 MB"
        );
    }

    #[test]
    fn groups_are_bounded_in_number_and_by_what_finding_them_takes() {
        let many = format!("(?:{}(b))+", "(a)|".repeat(1500));
        assert_eq!(
            CompiledPattern::compile(&many).unwrap_err().message,
            "the pattern has 1501 groups, more than 100"
        );
        // Few groups with a large pattern, or the other way round.
        let classes = r"\w{8}";
        assert!(CompiledPattern::compile(classes).is_ok());
        let both = format!("{}{classes}", "(a)|".repeat(99));
        assert_eq!(
            CompiledPattern::compile(&both).unwrap_err().message,
            "the pattern is too large"
        );
        // And such a pattern is not kept.
        let grouped = "(a)|".repeat(50);
        assert!(!Arc::ptr_eq(
            &CompiledPattern::get_or_compile(&grouped).unwrap(),
            &CompiledPattern::get_or_compile(&grouped).unwrap()
        ));
    }

    #[test]
    fn the_cache_stays_small() {
        for index in 0..3 * MAX_CACHED_PATTERNS {
            CompiledPattern::get_or_compile(&format!("a{index}")).unwrap();
        }
        assert!(PATTERN_CACHE.lock().len() <= MAX_CACHED_PATTERNS);
        assert!(Arc::ptr_eq(
            &CompiledPattern::get_or_compile("b").unwrap(),
            &CompiledPattern::get_or_compile("b").unwrap()
        ));
    }
}
