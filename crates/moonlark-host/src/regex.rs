//! `regex`: regular expressions that cannot run away.
//!
//! What a match costs is bounded in [`compiled_pattern`]; what it may return, here.

mod compiled_pattern;

use moonlark_core::value::Object;
use moonlark_core::{Module, Result, Value};
use moonlark_gateway::Call;
use regex::{Captures, Match};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::args::check_result_size;
use compiled_pattern::{CompiledPattern, MatchTimeLimit};

pub(crate) fn module() -> Module {
    Module::new(
        "regex",
        "Search and replace with regular expressions: Perl's syntax without look-around and \
         back-references. Positions count bytes from 1 and the last is included, as in Lua.",
    )
    .pure()
    .function("is_match", "Whether the pattern occurs in the text.", is_match)
    .example(json!({"pattern": "^\\d+$", "text": "42"}), json!(true))
    .fails(json!({"pattern": "(", "text": ""}), "unclosed group")
    .function("find", "The first match, or nothing.", find)
    .example(
        json!({"pattern": "o+", "text": "a moon"}),
        json!({"start": 4, "finish": 5, "text": "oo"}),
    )
    .example(json!({"pattern": "x", "text": "moon"}), json!(null))
    .fails(json!({"pattern": "a{5,2}", "text": ""}), "the pattern is not valid")
    .function("find_all", "All matches that do not overlap.", find_all)
    .positional_params(&["limit"])
    .example(
        json!({"pattern": "o", "text": "moon", "limit": 1}),
        json!([{"start": 2, "finish": 2, "text": "o"}]),
    )
    .fails(json!({"pattern": "[", "text": ""}), "unclosed character class")
    .function("captures", "The groups of the first match, or nothing.", captures)
    .example(
        json!({"pattern": "(?<key>\\w+)=(\\d+)?", "text": "size="}),
        json!({"text": "size=", "groups": ["size", null], "named": {"key": "size"}}),
    )
    .fails(json!({"pattern": "(?<=a)b", "text": ""}), "look-around")
    .function(
        "replace",
        "Replace every match. In the replacement, $1 and ${name} stand for groups, $$ for $.",
        replace,
    )
    .positional_params(&["limit"])
    .example(
        json!({"pattern": "(\\w+)@(\\w+)", "text": "me@home", "replacement": "$2: $1"}),
        json!("home: me"),
    )
    .example(json!({"pattern": "o", "text": "moon", "replacement": "0", "limit": 1}), json!("m0on"))
    .fails(json!({"pattern": "o", "text": "moon"}), "replacement")
    .function("split", "The pieces of the text between the matches.", split)
    .positional_params(&["limit"])
    .example(json!({"pattern": "\\s*,\\s*", "text": "a , b,c"}), json!(["a", "b", "c"]))
    .example(json!({"pattern": ",", "text": "a,b,c", "limit": 2}), json!(["a", "b,c"]))
    .fails(json!({"pattern": "*", "text": ""}), "the pattern is not valid")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RegexSearchArgs {
    /// The regular expression.
    pattern: String,
    /// Where to search.
    text: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RegexSearchAllArgs {
    /// The regular expression.
    pattern: String,
    /// Where to search.
    text: String,
    /// At most this many results.
    limit: Option<u32>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RegexReplaceArgs {
    /// The regular expression.
    pattern: String,
    /// Where to search.
    text: String,
    /// What to put in place of a match.
    replacement: String,
    /// At most this many replacements.
    limit: Option<u32>,
}

/// Where a match is.
#[derive(JsonSchema)]
#[schemars(inline)]
struct RegexMatch {
    /// The place of the first byte, counted from 1.
    start: usize,
    /// The place of the last byte; one less than `start` for an empty match.
    finish: usize,
    /// What matched.
    text: String,
}

impl From<Match<'_>> for RegexMatch {
    fn from(found: Match<'_>) -> Self {
        RegexMatch {
            start: found.start() + 1,
            finish: found.end(),
            text: found.as_str().to_owned(),
        }
    }
}

impl From<RegexMatch> for Value {
    fn from(found: RegexMatch) -> Self {
        Value::from_fields([
            ("start", Value::Int(found.start as i64)),
            ("finish", Value::Int(found.finish as i64)),
            ("text", Value::Str(found.text)),
        ])
    }
}

/// What the groups of a match hold.
#[derive(JsonSchema)]
#[schemars(inline)]
struct RegexGroups {
    /// The whole match.
    text: String,
    /// Each group in order; null for one that took no part.
    groups: Vec<Option<String>>,
    /// The named groups that took part.
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    named: Object,
}

impl From<RegexGroups> for Value {
    fn from(groups: RegexGroups) -> Self {
        Value::from_fields([
            ("text", groups.text.into()),
            ("groups", groups.groups.into()),
            ("named", groups.named.into()),
        ])
    }
}

fn is_match(_: &Call, args: RegexSearchArgs) -> Result<bool> {
    let pattern = CompiledPattern::get_or_compile(&args.pattern)?;
    Ok(pattern.regex_for(&args.text)?.is_match(&args.text))
}

fn find(_: &Call, args: RegexSearchArgs) -> Result<Option<RegexMatch>> {
    let pattern = CompiledPattern::get_or_compile(&args.pattern)?;
    Ok(pattern.regex_for(&args.text)?.find(&args.text).map(RegexMatch::from))
}

/// What a match costs as a table, beside its text.
const MATCH_OVERHEAD_BYTES: usize = 128;

fn find_all(call: &Call, args: RegexSearchAllArgs) -> Result<Vec<RegexMatch>> {
    let pattern = CompiledPattern::get_or_compile(&args.pattern)?;
    let (mut all, mut size, mut clock) = (Vec::new(), 0, MatchTimeLimit::start(call));
    for found in pattern.regex_for(&args.text)?.find_iter(&args.text).take(limit_or_max(args.limit))
    {
        clock.check_time()?;
        size += MATCH_OVERHEAD_BYTES + found.len();
        check_result_size(call, size)?;
        all.push(found.into());
    }
    Ok(all)
}

fn captures(_: &Call, args: RegexSearchArgs) -> Result<Option<RegexGroups>> {
    let pattern = CompiledPattern::get_or_compile(&args.pattern)?;
    let regex = pattern.regex_for_captures(&args.text)?;
    let Some(captures) = regex.captures(&args.text) else { return Ok(None) };
    let text = |group: Match<'_>| group.as_str().to_owned();
    let named = regex.capture_names().flatten().filter_map(|name| {
        captures.name(name).map(|group| (name.to_owned(), Value::Str(text(group))))
    });
    Ok(Some(RegexGroups {
        text: captures[0].to_owned(),
        named: named.collect(),
        groups: captures.iter().skip(1).map(|group| group.map(text)).collect(),
    }))
}

fn replace(call: &Call, args: RegexReplaceArgs) -> Result<String> {
    let pattern = CompiledPattern::get_or_compile(&args.pattern)?;
    let text = &args.text;
    let (mut out, mut done, mut clock) = (String::new(), 0, MatchTimeLimit::start(call));
    let references = args.replacement.matches('$').count();
    let mut put =
        |out: &mut String, range: std::ops::Range<usize>, groups: Option<&Captures<'_>>| {
            clock.check_time()?;
            out.push_str(&text[done..range.start]);
            match groups {
                Some(groups) => {
                    // Known before a gigabyte is written, not after.
                    check_result_size(
                        call,
                        out.len().saturating_add(references.saturating_mul(range.len())),
                    )?;
                    groups.expand(&args.replacement, out);
                }
                None => out.push_str(&args.replacement),
            }
            done = range.end;
            check_result_size(call, out.len())
        };
    let with_groups = args.replacement.contains('$');
    let regex =
        if with_groups { pattern.regex_for_captures(text)? } else { pattern.regex_for(text)? };
    // Finding the groups costs more than finding the match.
    if with_groups {
        for groups in regex.captures_iter(text).take(limit_or_max(args.limit)) {
            let range = groups.get(0).map_or(0..0, |whole| whole.range());
            put(&mut out, range, Some(&groups))?;
        }
    } else {
        for found in regex.find_iter(text).take(limit_or_max(args.limit)) {
            put(&mut out, found.range(), None)?;
        }
    }
    out.push_str(&text[done..]);
    check_result_size(call, out.len())?;
    Ok(out)
}

/// What a piece costs in a list, beside its text.
const PIECE_OVERHEAD_BYTES: usize = 32;

fn split(call: &Call, args: RegexSearchAllArgs) -> Result<Vec<String>> {
    let pattern = CompiledPattern::get_or_compile(&args.pattern)?;
    let (mut all, mut size, mut clock) = (Vec::new(), 0, MatchTimeLimit::start(call));
    for piece in pattern.regex_for(&args.text)?.splitn(&args.text, limit_or_max(args.limit)) {
        clock.check_time()?;
        size += PIECE_OVERHEAD_BYTES + piece.len();
        check_result_size(call, size)?;
        all.push(piece.to_owned());
    }
    Ok(all)
}

fn limit_or_max(limit: Option<u32>) -> usize {
    limit.map_or(usize::MAX, |limit| limit as usize)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use crate::test_calls::{call, limited, problem, scope};

    #[tokio::test]
    async fn a_walk_that_takes_the_square_of_the_text_is_ended() {
        let args = json!({"pattern": ".*[^A-Z]|[A-Z]", "text": "A".repeat(1_000_000)});
        assert_eq!(
            problem(scope(Path::new("."), &[]), "regex.find_all", args).await,
            "error[limit]: regex.find_all: the matches take longer than 0.15 seconds\nhint: use a pattern that does not read far ahead, or search the text in pieces"
        );
    }

    #[tokio::test]
    async fn results_stay_within_the_limit() {
        let small = || limited(scope(Path::new("."), &[]), |limits| limits.value = 10_000);
        for (function, args) in [
            ("regex.find_all", json!({"pattern": "a", "text": "a".repeat(1000)})),
            ("regex.split", json!({"pattern": "a", "text": "a".repeat(1000)})),
            (
                "regex.replace",
                json!({"pattern": "a", "text": "a".repeat(1000), "replacement": "$0".repeat(100)}),
            ),
        ] {
            assert_eq!(
                problem(small(), function, args).await,
                format!(
                    "error[limit]: {function}: the result is larger than 10000 bytes\nhint: work on less at a time, or raise limits.value"
                )
            );
        }
    }

    #[tokio::test]
    async fn empty_matches_stand_between_characters() {
        let scope = || scope(Path::new("."), &[]);
        let find = json!({"pattern": "x*", "text": "äb"});
        assert_eq!(
            call(scope(), "regex.find", find).await.unwrap().to_json_lossy(),
            json!({"start": 1, "finish": 0, "text": ""})
        );
        let split = json!({"pattern": "", "text": "äb"});
        assert_eq!(
            call(scope(), "regex.split", split).await.unwrap().to_json_lossy(),
            json!(["", "ä", "b", ""])
        );
        let replace = json!({"pattern": "", "text": "äb", "replacement": "-"});
        assert_eq!(
            call(scope(), "regex.replace", replace).await.unwrap().to_json_lossy(),
            json!("-ä-b-")
        );
    }
}
