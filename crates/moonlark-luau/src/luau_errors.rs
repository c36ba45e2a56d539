//! Errors of Luau scripts as Problems: with their place, and the Luau way where the
//! author wrote another Lua.

use mlua::{Table, Value as Lv};
use moonlark_core::problem::cut_message;
use moonlark_core::value::{Value, shorten_text};
use moonlark_core::{Problem, ProblemCode, SourceLocation};

use crate::execute_tool::AGENT_SCRIPT_NAME;
use crate::luau_bridge::Bridge;
use crate::missing_values::MissingValue;
use crate::other_languages;
use crate::script_unit::{CompiledFile, ScriptUnit};
use crate::vm_host::VmHost;

/// Longest error value that is shown.
const MAX_ERROR_VALUE_BYTES: usize = 4096;

/// The Problem for an error value that nothing in the script caught.
pub(crate) fn problem_from_error_value(
    bridge: &Bridge,
    shared: &VmHost,
    raised: Lv,
    unit: &ScriptUnit,
) -> Problem {
    match raised {
        Lv::String(text) => problem_from_text(&text.to_string_lossy(), shared, unit),
        Lv::Table(table) => match table.raw_get::<Table>("host") {
            Ok(problem) => problem_from_host(&problem, shared, unit),
            Err(_) => {
                let mut problem = Problem::tool_error(describe_error_table(bridge, &table));
                problem.place = error_location(&table);
                problem
            }
        },
        Lv::Error(error) => match &*error {
            mlua::Error::MemoryError(_) => shared.memory.out_of_memory_problem(),
            error => Problem::tool_error(cut_message(&first_error_line(&error.to_string()))),
        },
        _ => Problem::tool_error("the script failed without saying why"),
    }
}

/// A syntax error, with line and hint.
pub(crate) fn syntax_problem(message: &str, code: &CompiledFile) -> Problem {
    let message = first_error_line(message);
    let mut problem = match code.split_location(&message) {
        Some((line, message)) => {
            let hint = syntax_hint(
                message,
                line,
                |line| code.source_line(line),
                code.name() == AGENT_SCRIPT_NAME,
            );
            let place = SourceLocation::at_line(code.name(), line);
            Problem::tool_error(cut_message(message))
                .with_optional_hint(hint.map(str::to_owned))
                .at_location(place)
        }
        None => Problem::tool_error(cut_message(&message)),
    };
    problem.code = ProblemCode::BadScript;
    problem
}

/// How a line is written here that the parser does not take.
pub(crate) fn syntax_hint<'a>(
    message: &str,
    at: u32,
    line: impl Fn(u32) -> &'a str,
    for_agents: bool,
) -> Option<&'static str> {
    let text = line(at);
    other_languages::hint_for_syntax(message, at, line)
        .or_else(|| hint_for_lua_spelling(message, text, for_agents))
}

fn problem_from_text(text: &str, shared: &VmHost, unit: &ScriptUnit) -> Problem {
    if text == "not enough memory" {
        return shared.memory.out_of_memory_problem();
    }
    match unit.split_location(text) {
        Some((code, line, message)) => problem_at_line(&code, line, message),
        None => Problem::tool_error(cut_message(text)),
    }
}

fn problem_at_line(code: &CompiledFile, line: u32, message: &str) -> Problem {
    let text = code.source_line(line);
    let for_agents = code.name() == AGENT_SCRIPT_NAME;
    let problem = if for_agents { agent_mistake_problem(message, text) } else { None };
    problem
        .unwrap_or_else(|| {
            let hint = hint_for_lua_spelling(message, text, for_agents)
                .or_else(|| other_languages::hint_for_runtime_error(message, text, for_agents));
            Problem::tool_error(cut_message(message)).with_optional_hint(hint.map(str::to_owned))
        })
        .at_location(SourceLocation::at_line(code.name(), line))
}

/// Make a missing field the hint of an error that comes of it: something was nil on the line
/// that reads the field. Whether it is.
pub(crate) fn explain_nil(problem: &mut Problem, missing: &MissingValue) -> bool {
    let line = match &problem.place {
        Some(place) if *place.file == *AGENT_SCRIPT_NAME => place.line,
        _ => None,
    };
    let is_here = line.is_some_and(|line| missing.lines.contains(&line));
    if problem.code != ProblemCode::ToolError || !problem.message.contains("nil") || !is_here {
        return false;
    }
    problem.hint = Some(match problem.hint.take() {
        // What is nil is known now.
        Some(hint) if !hint.contains("is nil") => format!("{}; {hint}", missing.message),
        _ => missing.message.clone(),
    });
    true
}

/// What agents get wrong about the few things that only their scripts have.
fn agent_mistake_problem(message: &str, line: &str) -> Option<Problem> {
    let line = shorten_line(line);
    let calls_result = line.match_indices("result").any(|(at, word)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].trim_start();
        !before.is_some_and(|it| it.is_alphanumeric() || "_.:".contains(it))
            && after.starts_with(['(', '{'])
    });
    if calls_result && message.starts_with("attempt to call a ") {
        let hidden = "a variable named result hides the function result, which takes the answer";
        return Some(
            Problem::tool_error(format!("{hidden}: {message}"))
                .with_hint("give the variable another name: local sum = …; result(sum)"),
        );
    }
    if message.contains("'await'") {
        return Some(Problem::tool_error(cut_message(message)).with_hint(
            "only a promise has :await(), as source.fn({ … }) gives it; sdk.source.fn({ … }) waits by itself",
        ));
    }
    None
}

/// A Problem of a host function. What the host could not do is the script's
/// failure, except where the caller can do something about it.
fn problem_from_host(table: &Table, shared: &VmHost, unit: &ScriptUnit) -> Problem {
    let text = |key: &str| table.raw_get::<Option<String>>(key).ok().flatten();
    let word = text("code").unwrap_or_default();
    let kept = [
        ProblemCode::Denied,
        ProblemCode::Limit,
        ProblemCode::Unavailable,
        ProblemCode::ApprovalRequired,
    ];
    let kept =
        kept.into_iter().find(|code| code.as_str() == word).unwrap_or(ProblemCode::ToolError);
    let mut problem = Problem::new(kept, cut_message(&text("text").unwrap_or_default()))
        .with_optional_hint(text("hint").map(|hint| cut_message(&hint)))
        .with_retryable(table.raw_get("retryable").unwrap_or(false));
    problem.place =
        error_location(table).or_else(|| Some(SourceLocation::in_file(unit.main().name())));
    let refusal = table.raw_get::<Option<u32>>("refusal").ok().flatten();
    problem.refusal = refusal.and_then(|number| shared.find_refusal(number));
    problem
}

fn error_location(table: &Table) -> Option<SourceLocation> {
    let source: String = table.raw_get("source").ok()?;
    let line: u32 = table.raw_get("line").ok()?;
    Some(SourceLocation::at_line(source, line))
}

/// The words for `error({ … })`: its message if it has one.
fn describe_error_table(bridge: &Bridge, table: &Table) -> String {
    let raised: Lv = table.raw_get("raised").unwrap_or(Lv::Nil);
    if let Lv::Table(fields) = &raised
        && let Ok(Some(message)) = fields.raw_get::<Option<String>>("message")
    {
        return cut_message(&message);
    }
    match bridge.read_value(&raised, "error", MAX_ERROR_VALUE_BYTES) {
        Ok(Value::Null) => "the script raised an error without a value".to_owned(),
        Ok(Value::Str(text)) => cut_message(&text),
        Ok(value) => cut_message(&value.to_json_lossy().to_string()),
        Err(_) => "the script raised an error value that cannot be shown".to_owned(),
    }
}

pub(crate) fn first_error_line(text: &str) -> String {
    let text = text
        .strip_prefix("runtime error: ")
        .or(text.strip_prefix("syntax error: "))
        .unwrap_or(text);
    text.lines().next().unwrap_or_default().to_owned()
}

/// What to write instead, for the spellings that real Lua 5.4 scripts use. Scripts
/// of agents have no files and no environment of their own.
pub(crate) fn hint_for_lua_spelling(
    message: &str,
    line: &str,
    for_agents: bool,
) -> Option<&'static str> {
    // Only lines of a size that a person wrote.
    let line = shorten_line(line);
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '.';
    let has = |part: &str| {
        let is_name = part.starts_with(|it: char| it.is_alphabetic());
        line.match_indices(part).any(|(at, _)| !is_name || !line[..at].ends_with(is_part))
    };
    const NO_FILES_HINT: &str =
        "scripts of agents have no files: call a tool that reads or writes them";
    let hint = match () {
        () if has("os.getenv") && for_agents => "scripts of agents see no environment variables",
        () if has("os.getenv") => "use env.get(\"NAME\"), with \"env:NAME\" in allow",
        () if has("os.execute") || has("io.popen") => "scripts cannot run commands through a shell",
        () if has("os.exit") => "a script ends by return: return value",
        () if has("io.write") => "use print(...) or log.info(...)",
        () if has("io.") && for_agents => NO_FILES_HINT,
        () if has("io.open") && opens_for_writing(&line) => {
            "use fs.write(path, text), with \"fs:write\" in allow"
        }
        () if has("io.open") || has("io.lines") || has("io.read") => "use fs.read(path)",
        () if has("io.") => "there is no io here: use fs.read, fs.write or print",
        () if has("loadstring") || has("dofile") || has("load(") => {
            "code cannot be loaded at run time"
        }
        () if has("goto ") || has("::") => "Luau has no goto: use continue or a function",
        () if has("<const>") || has("<close>") => "Luau has no attributes: write a plain local",
        () if has("setfenv") || has("getfenv") => "environments cannot be changed here",
        () if has("collectgarbage") => "memory is managed for you: leave collectgarbage out",
        () if message.contains("Expected")
            && (has("&") || has("|") || has("<<") || has(">>") || has("~")) =>
        {
            "bit operators are functions here: bit32.band, bor, bxor, bnot, lshift, rshift"
        }
        () => return None,
    };
    Some(hint)
}

/// `io.open(path, "w")`
fn opens_for_writing(line: &str) -> bool {
    ["\"w", "'w", "\"a\"", "'a'", "\"r+", "'r+"].iter().any(|mode| line.contains(mode))
}

fn shorten_line(line: &str) -> std::borrow::Cow<'_, str> {
    if line.len() > 1000 { shorten_text(line) } else { line.into() }
}
