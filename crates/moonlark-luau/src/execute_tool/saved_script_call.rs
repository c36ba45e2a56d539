//! Saved scripts as tools: `sdk.scripts.NAME`, and `execute` by name.
//!
//! Each call is a run like any other. Called by a script, it is a part of that script's run:
//! if that is resumed, it goes on as well.

use std::sync::Arc;

use moonlark_core::content::ToolAnswer;
use moonlark_core::sdk::{SAVED_SCRIPTS_SOURCE_NAME, SdkSource};
use moonlark_core::tool::{Source, SourceKind, ToolExposure, ToolListing};
use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Catalog, Problem, Result, Tool, Value};
use moonlark_gateway::Call;
use moonlark_gateway::run::SavedRunRequest;
use moonlark_gateway::tool_body::ToolBody;

use super::run_start::{RunStart, begin_saved_run};
use super::{AGENT_SCRIPT_NAME, ExecuteSettings, execute_run, run_to_end, script_tool_scope};
use crate::engine::LuauEngine;
use crate::saved_script::SavedScript;

/// What `execute` takes beside the name of a saved script.
const SAVED_CALL_PARAMETERS: [&str; 5] = ["saved", "arguments", "script", "timeout", "plan"];

impl LuauEngine {
    /// The tool that a saved script is. It may do what agents' scripts may.
    pub fn saved_script_tool(
        &self,
        script: Arc<SavedScript>,
        file: &str,
        expose: ToolExposure,
        settings: Arc<ExecuteSettings>,
    ) -> Result<Tool> {
        let name = SAVED_SCRIPTS_SOURCE_NAME.to_owned();
        let source = Arc::new(Source { kind: SourceKind::Saved, name });
        let scope = script_tool_scope(&settings);
        let header = script.tool_header(file)?;
        let (engine, own, checked) =
            (self.clone(), script.clone(), Arc::<str>::from(script.text_to_check()));
        let body = ToolBody::from_answering_fn(move |call, args| {
            let (engine, settings) = (engine.clone(), settings.clone());
            run_saved_script(engine, settings, own.clone(), checked.clone(), call, args)
        });
        let only_calls = scope.grants.only_calls_tools();
        let mut tool = header.into_tool(None, source, scope, body)?;
        tool.only_calls = only_calls;
        tool.continues_itself = true;
        tool.expose = expose;
        tool.shown = ToolListing::As(format!("{SAVED_SCRIPTS_SOURCE_NAME}__{}", script.name()));
        Ok(tool)
    }
}

async fn run_saved_script(
    engine: LuauEngine,
    settings: Arc<ExecuteSettings>,
    script: Arc<SavedScript>,
    checked: Arc<str>,
    call: Call,
    args: Value,
) -> Result<ToolAnswer> {
    let SavedRunRequest { timeout, plan } = call.saved_run_request().unwrap_or_default();
    let time = timeout.unwrap_or(settings.scope.limits.timeout);
    let only_reads = call.is_of_reading_script();
    let bound = script.bind_arguments(&args, only_reads)?;
    let mut begun = match begin_saved_run(&call, &bound, time, plan).await? {
        RunStart::Run(begun) => begun,
        RunStart::Ended(answer) => return answer,
    };
    begun.checked = Some(checked);
    // Also one that goes on from a record without that word.
    if only_reads {
        begun.run.hold_to_reading(script.name());
    }
    if !begun.is_part {
        return execute_run(engine, settings, call, begun).await;
    }
    let (run, parent) = (begun.run.clone(), call.run().cloned());
    let answer = run_to_end(engine, settings, call, begun).await;
    // What must not go on stops all that it is a part of.
    if let (Some(parent), Some(problem)) = (parent, run.stop_problem()) {
        parent.stop_with(problem.clone());
    }
    answer
}

/// What a script gets of a saved script that it calls: the value, or what went wrong, with
/// the line of the saved script.
pub(super) fn answer_to_script(ended: Result<Value>, call: &Call) -> Result<ToolAnswer> {
    ended.map(ToolAnswer::Value).map_err(|mut problem| {
        let line = problem.place.take().filter(|it| *it.file == *AGENT_SCRIPT_NAME);
        if let Some(line) = line.and_then(|it| it.line) {
            problem.message = format!("{}:{line}: {}", call.tool(), problem.message);
        }
        problem
    })
}

/// `execute` with the name of a saved script.
pub(super) async fn call_saved_script(
    settings: &ExecuteSettings,
    call: &Call,
    args: &Value,
) -> Result<ToolAnswer> {
    let Value::Object(fields) = args else { return Err(Problem::internal("no object")) };
    let is_set = |value: &Value| !matches!(value, Value::Null) && value.as_str() != Some("");
    let other = fields
        .iter()
        .find(|(key, value)| !SAVED_CALL_PARAMETERS.contains(&key.as_str()) && is_set(value));
    if args.get("script").is_some_and(is_set) {
        return Err(Problem::bad_request("execute takes either a script or saved").with_hint(
            "leave one of them out; a script calls a saved one as sdk.scripts.NAME({ … })",
        ));
    }
    if let Some((other, _)) = other {
        return Err(Problem::bad_request(format!("{other} goes with no saved script"))
            .with_hint("leave it out: a saved script takes arguments, timeout and plan"));
    }
    let Some(name) = args.get("saved").and_then(Value::as_str) else {
        return Err(Problem::bad_request("saved is the name of a saved script")
            .with_hint("write {\"saved\": \"weekly_report\", \"arguments\": {}}"));
    };
    let asked = SavedRunRequest {
        timeout: Some(settings.script_timeout(args.get("timeout"))?),
        plan: args.get("plan") == Some(&Value::Bool(true)),
    };
    let tool = find_saved_script(call.catalog(), name)?;
    let given = match args.get("arguments") {
        None | Some(Value::Null) => Value::Object(Object::new()),
        Some(given) => given.clone(),
    };
    call.gateway().invoke(&call.with_saved_run_request(asked), tool, given).await
}

/// By its name, with or without what scripts write before it.
fn find_saved_script<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a Arc<Tool>> {
    let own = name.strip_prefix("sdk.").unwrap_or(name);
    let own = own.strip_prefix("scripts.").unwrap_or(own);
    let source = catalog.sdk().sources().iter().find(|source| source.kind == SourceKind::Saved);
    let Some(source) = source else {
        return Err(Problem::not_found(format!("there is no saved script {}", shorten_text(own)))
            .with_hint("there are none: put a script with a header into the folder scripts"));
    };
    let found = source.find_function(own);
    found.map(|function| &function.tool).ok_or_else(|| unknown_script_problem(source, own))
}

fn unknown_script_problem(source: &SdkSource, name: &str) -> Problem {
    let problem = source.unknown_function_problem(name);
    let message = format!("there is no saved script {}", shorten_text(name));
    problem.with_message(message)
}
