//! A recorded run as a Luau tool: its script with parameters in the place of literals, what
//! it answers as its output, what it may call as its grants, and a test that replays it.

mod tool_text;

use std::collections::BTreeSet;

use moonlark_core::answer_shape::AnswerShape;
use moonlark_core::nearest::nearest_name;
use moonlark_core::sdk::SAVED_SCRIPTS_SOURCE_NAME;
use moonlark_core::secret::{redact_literals, secrets_from_literals};
use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::journal::{RedactionScopes, RunRecord, redaction};

use moonlark_luau::{ScriptToken, ScriptTokenKind, tokenize_script};
use tool_text::{render_test, render_tool};

/// Calls that a test replays; a run with more is no unit to test.
const MAX_MOCKED_CALLS: usize = 1000;

/// What the tool is to be called, and which literals its parameters are.
pub(crate) struct ToolRequest<'a> {
    pub(crate) name: &'a str,
    /// As they were given: `"Bonn"=city`.
    pub(crate) params: &'a [String],
    /// There are none, whatever could be one.
    pub(crate) no_params: bool,
    /// The scripts of other runs.
    pub(crate) others: &'a [String],
}

/// The files, and what has to stand in the configuration.
#[derive(Debug, PartialEq)]
pub(crate) struct ToolFromRun {
    pub(crate) tool: String,
    pub(crate) test: String,
    pub(crate) grants: BTreeSet<String>,
}

/// A literal of the script that becomes a parameter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolParameter {
    name: String,
    /// As the script has it.
    literal: String,
    /// Only where it stands in this line.
    line: Option<u32>,
    kind: &'static str,
}

impl ToolParameter {
    fn stands_for(&self, token: &ScriptToken<'_>) -> bool {
        let is_there = self.line.is_none_or(|line| line == token.line);
        is_there && token.is_literal() && token.text == self.literal
    }
}

/// A call of the run, as the tool's test replays it.
pub(crate) struct ReplayedCall {
    tool: String,
    args: Value,
    answer: Result<Value, String>,
}

impl ToolFromRun {
    pub(crate) fn make(record: &RunRecord, request: &ToolRequest<'_>) -> Result<ToolFromRun> {
        let id = record.began.run;
        let answer = finished_answer(record)?;
        let script = &record.began.script;
        if script.starts_with("local params = ") {
            return Err(Problem::bad_request(format!("run {id} is one of a saved script"))
                .with_hint("a saved script is a tool where [scripts] has expose = \"both\""));
        }
        let tokens = tokenize_script(script);
        if let Some(token) = tokens.iter().find(|it| it.is_name("artifact")) {
            return Err(Problem::bad_request(format!(
                "line {} reads an artifact, which tools do not have",
                token.line
            ))
            .with_hint("let the script return what it needs of it"));
        }
        let params = choose_parameters(&tokens, request)?;
        let replaced = replace_literals(script, &tokens, &params);
        if redact_literals(&replaced) != replaced {
            return Err(Problem::bad_request("the script has a secret in plain text").with_hint(
                "make it a parameter with --param, or read it with env.get and a grant",
            ));
        }
        let calls = replayed_calls(record)?;
        let annotations = common_effects(record);
        let output = AnswerShape::from_value(&answer).to_schema();
        let sources = named_sources(record);
        let tool = render_tool(&tool_text::ToolParts {
            name: request.name,
            run: id,
            script: &replaced,
            tokens: &tokens,
            params: &params,
            output: &output,
            annotations: &annotations,
            sources: &sources,
        });
        moonlark_luau::check_compiles(&tool)?;
        let test = render_test(request.name, &params, &calls, &answer);
        // What became a parameter may be secret by the name it had.
        let secrets = secrets_from_literals(script);
        let [tool, test] = [tool, test].map(|text| secrets.redact_text(&text).into_owned());
        Ok(ToolFromRun { tool, test, grants: needed_grants(record) })
    }
}

/// What the run was answered with; a Problem if it is none to make a tool of.
fn finished_answer(record: &RunRecord) -> Result<Value> {
    let id = record.began.run;
    if record.began.plan {
        return Err(Problem::bad_request(format!("{id} is a plan: nothing of it was done"))
            .with_hint(format!(
                "carry it out with `moonlark runs resume {id}`, and save that run"
            )));
    }
    match record.ended.as_ref().and_then(|ended| ended.answer.clone()) {
        Some(Ok(answer)) => {
            let value = answer.into_plain_value();
            let shown = redaction::redact_arguments(&value, &RedactionScopes::default());
            // What is secret by its name stays out of files.
            Ok(Value::parse_json(shown.as_bytes()).unwrap_or(value))
        }
        Some(Err(problem)) => {
            Err(Problem::bad_request(format!("run {id} failed: {}", problem.message)).with_hint(
                "only a run that ended well becomes a tool: mend its script and run it again",
            ))
        }
        None => Err(Problem::bad_request(format!("run {id} has not ended"))
            .with_hint(format!("`moonlark runs resume {id}` goes on with it"))),
    }
}

/// The literals that are named, or a Problem that proposes some.
fn choose_parameters(
    tokens: &[ScriptToken<'_>],
    request: &ToolRequest<'_>,
) -> Result<Vec<ToolParameter>> {
    if request.params.is_empty() {
        let proposed = propose_parameters(tokens, request.others);
        if request.no_params || proposed.is_empty() {
            return Ok(Vec::new());
        }
        let options: Vec<String> = proposed
            .iter()
            .map(|it| {
                let line = it.line.map_or_else(String::new, |line| format!("{line}:"));
                format!("--param '{line}{}={}'", it.literal, it.name)
            })
            .collect();
        return Err(Problem::bad_request(
            "runs of the same script differ in some literals, which are likely its parameters",
        )
        .with_hint(format!("add {}, or --no-params for a tool without", options.join(" "))));
    }
    let mut params: Vec<ToolParameter> = Vec::new();
    for text in request.params {
        let (literal, name) = text.rsplit_once('=').ok_or_else(|| no_parameter_problem(text))?;
        let (literal, name) = (literal.trim(), name.trim());
        if !moonlark_render::luau::is_luau_name(name) {
            return Err(no_parameter_problem(text));
        }
        let (line, literal) = match literal.split_once(':') {
            Some((line, rest)) if line.parse::<u32>().is_ok() => (line.parse().ok(), rest),
            _ => (None, literal),
        };
        if params.iter().any(|it| it.name == name || it.literal == literal && it.line == line) {
            let message = format!("--param {text}: the name or the literal is there twice");
            return Err(Problem::bad_request(message).with_hint("name each literal once"));
        }
        // The shell may have taken the quotes away.
        let quoted = format!("{literal:?}");
        let found = tokens.iter().find(|it| it.is_literal() && it.text == literal);
        let found = found.or_else(|| tokens.iter().find(|it| it.is_literal() && it.text == quoted));
        let Some(token) = found else {
            let literals = || tokens.iter().filter(|it| it.is_literal()).map(|it| it.text);
            let hint = match nearest_name(literal, literals()) {
                Some(near) => format!("did you mean --param '{near}={name}'?"),
                None => {
                    let some: BTreeSet<&str> = literals().take(12).collect();
                    let some: Vec<&str> = some.into_iter().collect();
                    format!("its literals are {}", some.join(", "))
                }
            };
            let message = format!("the script has no literal {}", shorten_text(literal));
            return Err(Problem::bad_request(message).with_hint(hint));
        };
        let (literal, kind) = (token.text.to_owned(), token.literal_kind());
        let param = ToolParameter { name: name.to_owned(), literal, line, kind };
        check_is_unambiguous(&param, tokens)?;
        params.push(param);
    }
    Ok(params)
}

/// A text that is there twice most likely means the same; a number may well not.
fn check_is_unambiguous(param: &ToolParameter, tokens: &[ScriptToken<'_>]) -> Result<()> {
    let ToolParameter { name, literal, line, kind } = param;
    let lines: Vec<u32> =
        tokens.iter().filter(|token| param.stands_for(token)).map(|token| token.line).collect();
    match (lines.as_slice(), line) {
        ([], Some(line)) => {
            Err(Problem::bad_request(format!("line {line} has no literal {literal}"))
                .with_hint("`moonlark runs ID` shows the script with its lines"))
        }
        ([_, _, ..], None) if *kind != "string" => {
            let some: Vec<String> = lines.iter().take(8).map(u32::to_string).collect();
            let message = format!(
                "{literal} is in the script {} times, in lines {}",
                lines.len(),
                some.join(", ")
            );
            Err(Problem::bad_request(message)
                .with_hint(format!("say which is meant: --param '{}:{literal}={name}'", lines[0])))
        }
        _ => Ok(()),
    }
}

fn no_parameter_problem(text: &str) -> Problem {
    Problem::bad_request(format!("--param {text} names no literal and no parameter")).with_hint(
        "write --param '\"Bonn\"=city': a literal of the script, and the parameter's name",
    )
}

/// The literals in which scripts differ that are the same otherwise.
fn propose_parameters(tokens: &[ScriptToken<'_>], others: &[String]) -> Vec<ToolParameter> {
    let mut differ: BTreeSet<usize> = BTreeSet::new();
    for other in others {
        let theirs = tokenize_script(other);
        let is_same_shape = tokens.len() == theirs.len()
            && tokens.iter().zip(&theirs).all(|(ours, theirs)| {
                ours.kind == theirs.kind && (ours.is_literal() || ours.text == theirs.text)
            });
        if is_same_shape {
            let pairs = tokens.iter().zip(&theirs).enumerate();
            differ.extend(pairs.filter(|(_, (a, b))| a.text != b.text).map(|(index, _)| index));
        }
    }
    let mut proposed: Vec<ToolParameter> = Vec::new();
    for index in differ {
        let token = &tokens[index];
        if proposed.iter().any(|it| it.literal == token.text) {
            continue;
        }
        // `city = "Bonn"` is a city.
        let named = match index.checked_sub(2).map(|at| &tokens[at..index]) {
            Some([name, equals]) if equals.text == "=" && name.kind == ScriptTokenKind::Name => {
                name.text
            }
            _ => "value",
        };
        let is_taken = |name: &str| proposed.iter().any(|it| it.name == name);
        let name = moonlark_core::catalog::numbered_until_free(named, is_taken);
        let literal = token.text.to_owned();
        let is_number = token.kind == ScriptTokenKind::Number;
        let line = is_number.then_some(token.line);
        proposed.push(ToolParameter { name, literal, line, kind: token.literal_kind() });
    }
    proposed
}

/// The script with its parameters in the place of the literals.
fn replace_literals(script: &str, tokens: &[ScriptToken<'_>], params: &[ToolParameter]) -> String {
    let mut out = String::new();
    let mut done = 0;
    for (index, token) in tokens.iter().enumerate() {
        let param = params.iter().find(|it| it.stands_for(token));
        let Some(param) = param else { continue };
        out.push_str(&script[done..token.start]);
        // `f"text"` is a call.
        let is_argument = index.checked_sub(1).is_some_and(|before| {
            let before = &tokens[before];
            matches!(before.text, ")" | "]") || before.kind == ScriptTokenKind::Name
        });
        let value = format!("{}.{}", tool_text::params_name(tokens), param.name);
        out.push_str(&if is_argument && token.kind == ScriptTokenKind::Text {
            format!("({value})")
        } else {
            value
        });
        done = token.start + token.text.len();
    }
    out.push_str(&script[done..]);
    out
}

/// What the calls of the script were answered, in their order. Arguments and answers go
/// without what is secret by its name.
fn replayed_calls(record: &RunRecord) -> Result<Vec<ReplayedCall>> {
    let plain = |value: &Value| {
        let shown = redaction::redact_arguments(value, &RedactionScopes::default());
        Value::parse_json(shown.as_bytes())
    };
    let mut calls = Vec::new();
    for call in &record.calls {
        let Some(answer) = call.ended.as_ref().and_then(|ended| ended.answer.clone()) else {
            continue;
        };
        let answer = match answer {
            Ok(answer) => Ok(plain(&answer.into_plain_value())?),
            Err(problem) => Err(problem.message),
        };
        let (tool, args) = (call.began.tool.clone(), plain(&call.began.args)?);
        calls.push(ReplayedCall { tool, args, answer });
    }
    if calls.len() > MAX_MOCKED_CALLS {
        return Err(Problem::limit_exceeded(format!(
            "the run made {} calls, and a test replays up to {MAX_MOCKED_CALLS}",
            calls.len()
        ))
        .with_hint("save a run of the same script that made fewer"));
    }
    Ok(calls)
}

/// The annotations that hold for all that it called.
fn common_effects(record: &RunRecord) -> Vec<&'static str> {
    let all = |holds: fn(&moonlark_core::tool::CallEffects) -> bool| {
        // What a saved script says of itself may be something else tomorrow.
        record
            .calls
            .iter()
            .map(|call| &call.began)
            .all(|began| began.source != SAVED_SCRIPTS_SOURCE_NAME && holds(&began.effects))
    };
    let mut annotations = Vec::new();
    if all(|it| it.read_only) {
        annotations.push("read_only");
    } else if all(|it| it.read_only || it.idempotent) {
        annotations.push("idempotent");
    }
    annotations
}

/// What scripts of agents call sources, beside `sdk`.
fn named_sources(record: &RunRecord) -> BTreeSet<String> {
    let source = |tool: &str, source: &str| {
        let is_prefix = tool.strip_prefix(source).is_some_and(|rest| rest.starts_with('.'));
        if is_prefix { moonlark_core::sdk::to_identifier(source) } else { "tools".to_owned() }
    };
    record.calls.iter().map(|call| source(&call.began.tool, &call.began.source)).collect()
}

/// What the tool has to be granted to make the same calls.
fn needed_grants(record: &RunRecord) -> BTreeSet<String> {
    let mut grants = BTreeSet::new();
    for call in &record.calls {
        let (tool, args) = (call.began.tool.as_str(), &call.began.args);
        match tool.split_once('.') {
            Some((module @ ("http" | "env" | "exec"), _)) if call.began.source == module => {
                let text = |key: &str| args.get(key).and_then(Value::as_str);
                let url = text("url").or_else(|| args.get("opts")?.get("url")?.as_str());
                let host = url.and_then(|it| it.split("://").nth(1)?.split(['/', '?', '#']).next());
                let grant = match module {
                    "http" => host.map(|host| format!("net:{host}")),
                    "env" => text("name").map(|name| format!("env:{name}")),
                    _ => text("cmd").map(|command| format!("exec:{command}")),
                };
                grants.extend(grant);
            }
            Some(_) if is_host_module(&call.began.source, tool) => {}
            _ => {
                grants.insert(format!("tool:{tool}"));
            }
        }
    }
    grants
}

/// Functions of modules that need no grant: `sleep`, `fs.read`.
fn is_host_module(source: &str, tool: &str) -> bool {
    let modules = ["sleep", "fs", "sqlite", "postgres", "time", "crypto", "artifact"];
    modules.contains(&source) && (tool == source || tool.starts_with(&format!("{source}.")))
}
