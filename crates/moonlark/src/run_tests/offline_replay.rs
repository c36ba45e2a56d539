//! A test that was made of a run, replayed: no call is made, and what differs is said.

use std::sync::Arc;

use moonlark_core::content::ToolAnswer;
use moonlark_core::record_id::RecordId;
use moonlark_core::secret::Secrets;
use moonlark_core::tool::BoxFuture;
use moonlark_core::value::Object;
use moonlark_core::{Catalog, Problem, ProblemCode, Result, Value};
use moonlark_gateway::Gateway;
use moonlark_gateway::gateway::CallRecords;
use moonlark_gateway::journal::{JournalEntry, JournalRecorder, RunRecord};
use moonlark_gateway::run::{
    NewCallPolicy, RUN_META_KEY, ValueChange, answer_logs, line_changes, plain_result,
    value_changes,
};
use serde_json::Value as Json;

use super::run_test_file::RunTestFile;
use crate::builtin;
use crate::cli::cli_caller;
use crate::project::Project;

/// Differences that are named.
const MAX_NAMED_DIFFERENCES: usize = 30;

/// What a replay came to.
pub(crate) struct TestReplay {
    pub(crate) result: Json,
    pub(crate) logs: Vec<String>,
    /// How the calls differ from those on record.
    pub(crate) call_differences: Vec<String>,
}

/// Replay the test, and say what differs.
pub(crate) async fn replay_test(file: &RunTestFile, script: &str, project: &Project) -> Result<()> {
    let replayed = TestReplay::run(file, script, project).await?;
    let mut differences = replayed.call_differences;
    let expected = Value::from_json(file.result.clone())?;
    let changes = value_changes(&expected, &Value::from_json(replayed.result)?);
    differences.extend(changes.iter().map(|change| change_text("result", change)));
    let (old, new) = (file.logs.join("\n"), replayed.logs.join("\n"));
    for change in line_changes(&old, &new, &Secrets::default()) {
        let what = if change.is_added { "has the new line" } else { "no longer has the line" };
        differences.push(format!("logs: the output {what} {:?}", change.text));
    }
    if differences.is_empty() {
        return Ok(());
    }
    let more = differences.len().saturating_sub(MAX_NAMED_DIFFERENCES);
    differences.truncate(MAX_NAMED_DIFFERENCES);
    if more > 0 {
        differences.push(format!("… and {more} more"));
    }
    Err(Problem::tool_error(format!(
        "the run differs from the recorded one\n{}",
        differences.join("\n")
    ))
    .with_hint("if it is meant to, save a run of the new script as a test: `moonlark runs save ID --as-test NAME --replace`"))
}

/// Have the test expect what its replay comes to. A Problem if that makes other calls than
/// are on record: then something that was taken out matters to the script.
pub(crate) async fn expect_replayed(
    file: &mut RunTestFile,
    script: &str,
    project: &Project,
) -> Result<()> {
    let replayed = TestReplay::run(file, script, project).await?;
    if !replayed.call_differences.is_empty() {
        let differences = replayed.call_differences.join("\n");
        return Err(Problem::bad_request(format!(
            "the run cannot be saved as a test: its replay differs\n{differences}"
        ))
        .with_hint(
            "secrets are taken out of a test: a script that computes with one, or tools that have \
             changed since, make another run of it",
        ));
    }
    (file.result, file.logs) = (replayed.result, replayed.logs);
    Ok(())
}

fn change_text(what: &str, change: &ValueChange) -> String {
    let path = match change.path.as_str() {
        "" => what.to_owned(),
        path if path.starts_with('[') => format!("{what}{path}"),
        path => format!("{what}.{path}"),
    };
    match (&change.before, &change.after) {
        (Some(before), Some(after)) => format!("{path}: expected {before}, got {after}"),
        (Some(before), None) => format!("{path}: expected {before}, which is not there"),
        (None, Some(after)) => format!("{path}: {after} was not expected"),
        (None, None) => path,
    }
}

impl TestReplay {
    pub(crate) async fn run(
        file: &RunTestFile,
        script: &str,
        project: &Project,
    ) -> Result<TestReplay> {
        let record = file.to_record(script)?;
        let id = record.began.run;
        let loaded = project.loaded_config().await;
        let execute = builtin::make_execute_tool(&project.luau, &loaded, true, None)?.tool;
        let mut tools = file.stand_in_tools()?;
        tools.retain(|tool| tool.name != execute.name);
        tools.push(execute);
        let modules = project.gateway.catalog().modules().clone();
        let catalog = Catalog::new(modules, tools, &[], Vec::new());
        let recorder: Arc<dyn JournalRecorder> = Arc::new(RecordedRun(record));
        let records = CallRecords { recorder: Some(recorder), ..CallRecords::default() };
        let gateway = Gateway::builder(catalog).records(records).build();
        let call = gateway.open_call(cli_caller())?;
        let args: Object = [
            ("script", ""),
            ("fork", id.to_string().as_str()),
            ("new_calls", NewCallPolicy::Refuse.as_str()),
        ]
        .map(|(name, value)| (name.to_owned(), Value::from(value)))
        .into_iter()
        .collect();
        let answer = gateway.invoke(&call, "execute", Value::Object(args)).await;
        let fork = forked(&answer);
        let result = plain_result(&answer, &Secrets::default());
        match fork {
            Some(fork) => Ok(TestReplay {
                result: result.into_json("result")?,
                logs: answer_logs(&answer),
                call_differences: call_differences(&fork),
            }),
            // It was not begun.
            None => Err(answer.err().unwrap_or_else(|| Problem::internal("nothing was run"))),
        }
    }
}

/// What the answer says of the fork.
fn forked(answer: &Result<ToolAnswer>) -> Option<Json> {
    let content = match answer {
        Ok(ToolAnswer::Content(content)) => content,
        Ok(_) => return None,
        Err(problem) => problem.content.as_deref()?,
    };
    Some(content.extra.get("_meta")?.get(RUN_META_KEY)?.get("fork")?.to_json_lossy())
}

fn call_differences(fork: &Json) -> Vec<String> {
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let describe = |call: &Json| {
        let (tool, place) = (text(&call["tool"]), text(&call["place"]));
        format!("{tool} at {place} with {}", text(&call["arguments"]))
    };
    let calls = |name: &str| fork[name].as_array().cloned().unwrap_or_default();
    let new = calls("new");
    let new = new.iter().map(|it| format!("calls: {} was not expected", describe(it)));
    let gone = calls("dropped");
    let gone = gone.iter().map(|it| format!("calls: {} was expected", describe(it)));
    let moved = calls("recorded");
    let moved = moved.iter().filter_map(|call| {
        let place = call.get("recorded_place")?;
        let (tool, now) = (text(&call["tool"]), text(&call["place"]));
        Some(format!("calls: {tool} was expected at {}, and is at {now}", text(place)))
    });
    new.chain(gone).chain(moved).collect()
}

/// A journal that has one run, and keeps nothing.
struct RecordedRun(RunRecord);

impl JournalRecorder for RecordedRun {
    fn record_entry(&self, _: JournalEntry) {}

    fn wait_for_room(&self) -> Option<BoxFuture<()>> {
        None
    }

    fn record_durably(&self, _: JournalEntry) -> BoxFuture<Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn take_over_run(&self, run: RecordId) -> BoxFuture<Result<RunRecord>> {
        self.load_run(run)
    }

    fn load_run(&self, run: RecordId) -> BoxFuture<Result<RunRecord>> {
        let found = if run == self.0.began.run {
            Ok(self.0.clone())
        } else {
            Err(Problem::new(ProblemCode::NotFound, format!("there is no run {run}")))
        };
        Box::pin(std::future::ready(found))
    }
}
