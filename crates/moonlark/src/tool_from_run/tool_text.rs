//! The text of a tool that was a run, and of its test.

use std::collections::BTreeSet;
use std::fmt::Write;

use moonlark_core::Value;
use moonlark_core::record_id::RecordId;
use moonlark_core::sdk::to_identifier;
use moonlark_luau::{ScriptToken, ScriptTokenKind};
use moonlark_render::luau::{is_luau_name, luau_value};
use serde_json::{Value as Json, json};

use super::{ReplayedCall, ToolParameter};

pub(super) struct ToolParts<'a> {
    pub(super) name: &'a str,
    pub(super) run: RecordId,
    /// With its parameters.
    pub(super) script: &'a str,
    /// Of the script as it was.
    pub(super) tokens: &'a [ScriptToken<'a>],
    pub(super) params: &'a [ToolParameter],
    pub(super) output: &'a Json,
    pub(super) annotations: &'a [&'a str],
    /// What scripts of agents call sources, beside `sdk`.
    pub(super) sources: &'a BTreeSet<String>,
}

/// What only scripts of agents have, and what stands for it in a tool. Calls that were
/// made at the same time are made one after the other there.
const AGENT_FUNCTIONS: [(&str, &str); 4] = [
    (
        "map_parallel",
        "local function map_parallel(list, fn)\n\
         \x20   local results = json.array({})\n\
         \x20   for index, item in list do results[index] = fn(item, index) end\n\
         \x20   return results\n\
         end\n",
    ),
    (
        "await_all",
        "local function await_all(promises)\n\
         \x20   local values = {}\n\
         \x20   for key, promise in promises do values[key] = promise:await() end\n\
         \x20   return values\n\
         end\n",
    ),
    (
        "await_any",
        "local function await_any(promises)\n\
         \x20   local problem = nil\n\
         \x20   for key, promise in promises do\n\
         \x20       local ok, value = pcall(promise.await, promise)\n\
         \x20       if ok then return value, key end\n\
         \x20       problem = value\n\
         \x20   end\n\
         \x20   return error(problem, 0)\n\
         end\n",
    ),
    ("result", "local given\nlocal function result(value) given = { value } end\n"),
];

const STARTING_FUNCTION: &str = "local function starting(source)\n\
     \x20   return setmetatable({}, {\n\
     \x20       __index = function(_, name)\n\
     \x20           return function(args)\n\
     \x20               local ok, value = pcall(function() return sdk[source][name](args) end)\n\
     \x20               return {\n\
     \x20                   await = function()\n\
     \x20                       if ok then return value end\n\
     \x20                       return error(value, 0)\n\
     \x20                   end,\n\
     \x20               }\n\
     \x20           end\n\
     \x20       end,\n\
     \x20   })\n\
     end\n";

/// The variable of the parameters: one that the script has no other use for.
pub(super) fn params_name(tokens: &[ScriptToken<'_>]) -> &'static str {
    let is_used = |name: &str| tokens.iter().any(|it| it.is_name(name));
    ["params", "arguments", "given_params"].into_iter().find(|it| !is_used(it)).unwrap_or("_params")
}

pub(super) fn render_tool(parts: &ToolParts<'_>) -> String {
    let ToolParts { name, run, script, tokens, params, output, annotations, sources } = parts;
    let mut text =
        format!("-- Made from run {run} by `moonlark runs save`. It is yours to edit.\n");
    let _ = write!(
        text,
        "tool = {{\n    name = {name:?},\n    description = {:?},\n",
        description(script, name)
    );
    if !params.is_empty() {
        text.push_str("    parameters = {\n");
        for ToolParameter { name, literal, kind, .. } in *params {
            let about = format!("{literal} in the run");
            let _ = writeln!(
                text,
                "        {{ name = {name:?}, type = {kind:?}, required = true, description = {} }},",
                luau_value(&json!(about))
            );
        }
        text.push_str("    },\n");
    }
    if output.get("type").is_some_and(|it| it == "object" || it == "array") {
        let _ = writeln!(text, "    output = {},", luau_value(output));
    }
    if !annotations.is_empty() {
        let marks: Vec<String> = annotations.iter().map(|it| format!("{it} = true")).collect();
        let _ = writeln!(text, "    annotations = {{ {} }},", marks.join(", "));
    }
    text.push_str("}\n\n");
    let is_own = |name: &str| is_declared(tokens, name);
    for (name, shim) in AGENT_FUNCTIONS {
        if tokens.iter().any(|it| it.is_name(name)) && !is_own(name) {
            text.push_str(shim);
            text.push('\n');
        }
    }
    let started: Vec<&String> = sources.iter().filter(|it| starts_calls(tokens, it)).collect();
    if !started.is_empty() {
        text.push_str(STARTING_FUNCTION);
        for source in started {
            let _ = writeln!(text, "local {source} = starting({source:?})");
        }
        text.push('\n');
    }
    let params = params_name(tokens);
    let _ = write!(text, "local function run({params})\n{}\nend\n\n", script.trim_end());
    let gives = tokens.iter().any(|it| it.is_name("result")) && !is_own("result");
    if gives {
        text.push_str(
            "function tool.execute(params)\n    local value = run(params)\n    \
             if given then return given[1] end\n    return value\nend\n",
        );
    } else {
        text.push_str("function tool.execute(params)\n    return run(params)\nend\n");
    }
    text
}

/// The first comment of the script, which says what it is about.
fn description(script: &str, name: &str) -> String {
    let first = script.lines().map(str::trim).find(|line| !line.is_empty());
    let said = first.and_then(|line| line.strip_prefix("--")).map(str::trim);
    match said.filter(|said| !said.is_empty() && !said.starts_with(['!', '['])) {
        Some(said) => said.to_owned(),
        None => name.replace(['_', '-'], " "),
    }
}

/// Whether the script has a variable or a function of that name itself.
fn is_declared(tokens: &[ScriptToken<'_>], name: &str) -> bool {
    tokens.windows(2).any(|pair| {
        let is_it = pair[1].is_name(name);
        is_it && (pair[0].is_name("local") || pair[0].is_name("function"))
    })
}

/// Whether a source is used without `sdk` before it, which starts calls.
fn starts_calls(tokens: &[ScriptToken<'_>], source: &str) -> bool {
    let is_free = |index: usize| {
        let is_field = index > 0 && matches!(tokens[index - 1].text, "." | ":");
        let is_used = tokens.get(index + 1).is_some_and(|it| matches!(it.text, "." | "["));
        !is_field && is_used
    };
    let named = tokens.iter().enumerate();
    let is_it =
        |token: &ScriptToken<'_>| token.kind == ScriptTokenKind::Name && token.text == source;
    is_luau_name(source)
        && !is_declared(tokens, source)
        && named.into_iter().any(|(index, token)| is_it(token) && is_free(index))
}

/// The arguments by which this call differs from other calls of the same tool.
fn telling_arguments(
    tool: &str,
    args: &Value,
    calls: &[ReplayedCall],
) -> serde_json::Map<String, serde_json::Value> {
    let Value::Object(args) = args else { return serde_json::Map::new() };
    let same_tool = || calls.iter().filter(|it| it.tool == tool);
    args.iter()
        .filter(|(name, value)| same_tool().any(|it| it.args.get(name) != Some(*value)))
        .map(|(name, value)| (name.clone(), value.to_json_lossy()))
        .collect()
}

pub(super) fn render_test(
    name: &str,
    params: &[ToolParameter],
    calls: &[ReplayedCall],
    expected: Option<&Value>,
) -> String {
    let mut text = format!(
        "local tool = require(\"./{name}\")\n\nfunction test_it_answers_as_the_run_did()\n"
    );
    for ReplayedCall { tool, args, answer } in calls {
        let answer = match answer {
            Ok(value) => format!("returns = {}", luau_value(&value.to_json_lossy())),
            Err(message) => format!("error = {}", luau_value(&json!(message))),
        };
        // On record are defaults too, which the script does not give.
        let when = match telling_arguments(tool, args, calls) {
            fields if fields.is_empty() => String::new(),
            fields => format!("when = {}, ", luau_value(&fields.into())),
        };
        // As its source calls it, and as scripts spell that.
        let spelled = tool.split_once('.').map(|(source, function)| {
            format!("{}.{}", to_identifier(source), to_identifier(function))
        });
        let names = [Some(tool.clone()), spelled.filter(|it| it != tool)];
        for target in names.into_iter().flatten() {
            let target = luau_value(&json!(target));
            let _ = writeln!(text, "    testing.mock_tool({target}, {{ {when}{answer} }})");
        }
    }
    let given: Vec<String> =
        params.iter().map(|it| format!("{} = {}", it.name, it.literal)).collect();
    let given =
        if given.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", given.join(", ")) };
    match expected.map(|answer| luau_value(&answer.to_json_lossy())) {
        Some(expected) => {
            let _ = writeln!(text, "    local answer = tool.execute({given}, testing.context())");
            let _ = writeln!(text, "    testing.eq(answer, {expected})");
        }
        None => {
            text.push_str("    -- What the run answered has a secret, so it is not compared.\n");
            let _ = writeln!(text, "    tool.execute({given}, testing.context())");
        }
    }
    text.push_str("end\n");
    text
}
