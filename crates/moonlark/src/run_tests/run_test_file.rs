//! The file of a test that was made of a run.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use moonlark_core::record_id::RecordId;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{CallEffects, CallScope, Source, SourceKind, ToolExposure};
use moonlark_core::{Catalog, Problem, Result, SourceLocation, Tool, Value};
use moonlark_gateway::CallOutcome;
use moonlark_gateway::journal::{
    CallBegan, CallEnded, CallRecord, RedactionScopes, RunBegan, RunRecord, caller_key,
};
use moonlark_gateway::run::RecordedSecrets;
use moonlark_gateway::tool_body::ToolBody;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::recorded_answer::{decode_answer, encode_answer};
use super::secret_removal::SecretRemoval;
use crate::cli::cli_caller;

/// How such files end.
pub(crate) const RUN_TEST_SUFFIX: &str = ".runtest.json";
const RUN_TEST_VERSION: u32 = 1;
/// Orders of answers are less, in microseconds: programs that read JSON keep such exactly.
const MAX_ANSWER_ORDER_MICROS: u64 = 1 << 53;

/// All of a test but its script.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunTestFile {
    moonlark_run_test: u32,
    /// The script, beside this file.
    pub(crate) script: String,
    /// Everything random in the script comes from it.
    seed: String,
    /// When the script's clock begins, in microseconds since 1970.
    clock: i64,
    /// The tools that are called, as they were.
    pub(crate) tools: Vec<RunTestTool>,
    /// The calls that are expected, in the order they were made, with their answers.
    pub(crate) calls: Vec<RunTestCall>,
    /// What the script returns, or its error.
    pub(crate) result: Json,
    #[serde(default)]
    pub(crate) logs: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunTestTool {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    original_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    source: String,
    kind: RunTestSource,
    read_only: bool,
    pub(crate) input: Map<String, Json>,
}

/// Where a tool came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RunTestSource {
    Builtin,
    Script,
    Extension,
    Upstream,
    Api,
    Saved,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunTestCall {
    /// Where in the script.
    pub(crate) place: String,
    pub(crate) tool: String,
    pub(crate) arguments: Json,
    /// Which answer of the run it was, in microseconds of the script's clock. None for a
    /// call that the script did not wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Json>,
}

impl RunTestFile {
    /// A test of what is on record, without secrets, and its script. `script` names the file
    /// that the script will be in.
    pub(crate) fn from_record(
        record: &RunRecord,
        catalog: &Catalog,
        script: String,
    ) -> Result<(RunTestFile, String)> {
        let id = record.began.run;
        if record.removed_calls > 0 {
            let message = format!("the recorded answers of run {id} are gone");
            return Err(Problem::not_found(message)
                .with_hint("the journal made room: raise journal.size, and run the script anew"));
        }
        let mut tools: Vec<Arc<Tool>> = Vec::new();
        let module_functions: Vec<&str> = catalog
            .modules()
            .iter()
            .flat_map(|module| &module.functions)
            .map(|function| function.tool.name.as_str())
            .chain(["artifact"])
            .collect();
        for call in &record.calls {
            let name = &call.began.tool;
            let is_known = tools.iter().any(|tool| tool.name == *name);
            if !is_known && !module_functions.contains(&name.as_str()) {
                tools.push(find_called_tool(catalog, name)?);
            }
        }
        let encoded = record.calls.iter().map(|call| {
            let ended = call.ended.as_ref().filter(|ended| ended.order.is_some());
            ended.and_then(|ended| ended.answer.as_ref()).map(encode_answer).transpose()
        });
        let answers: Vec<Option<Value>> = encoded.collect::<Result<_>>().map_err(|problem| {
            let message = format!("run {id} cannot be saved as a test: {}", problem.message);
            Problem::bad_request(message)
                .with_hint("a test keeps answers as JSON; have the tool answer with text or values")
        })?;
        let scopes = tools.iter().map(|tool| tool.scope.clone()).collect();
        let mut secrets = RecordedSecrets::from_record(record);
        // As they are kept, they may have more than a script is given.
        answers.iter().flatten().for_each(|answer| secrets.add_value(answer));
        let removal = SecretRemoval::for_secrets(secrets, &record.began.script, scopes);
        let calls = record.calls.iter().zip(&answers).map(|(call, answer)| {
            let clean = |value: &Value| removal.clean_value(value).into_json("call");
            Ok(RunTestCall {
                place: call.began.place.clone().unwrap_or_default(),
                tool: call.began.tool.clone(),
                arguments: clean(&call.began.args)?,
                order: call
                    .ended
                    .as_ref()
                    .and_then(|ended| ended.order)
                    .filter(|_| answer.is_some()),
                answer: answer.as_ref().map(clean).transpose()?,
            })
        });
        let clock = record.began.clock_start().duration_since(UNIX_EPOCH).unwrap_or_default();
        let file = RunTestFile {
            moonlark_run_test: RUN_TEST_VERSION,
            script,
            seed: record.began.seed.iter().map(|byte| format!("{byte:02x}")).collect(),
            clock: i64::try_from(clock.as_micros()).unwrap_or(i64::MAX),
            tools: tools.iter().map(|tool| RunTestTool::from_tool(tool)).collect(),
            calls: calls.collect::<Result<_>>()?,
            result: Json::Null,
            logs: Vec::new(),
        };
        Ok((file, removal.clean_script(&record.began.script)))
    }

    pub(crate) fn parse(text: &str, label: &str) -> Result<RunTestFile> {
        let wrong = |why: String| {
            Problem::bad_script(format!("the test cannot be read: {why}"))
                .at_location(SourceLocation::in_file(label))
                .with_hint("`moonlark runs save ID --as-test NAME` writes such files")
        };
        let file: RunTestFile =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if file.moonlark_run_test != RUN_TEST_VERSION {
            return Err(wrong(format!("it is of version {}", file.moonlark_run_test)));
        }
        if Path::new(&file.script).components().count() != 1 {
            return Err(wrong("its script is not a file beside it".to_owned()));
        }
        if file.seed_bytes().is_none() {
            return Err(wrong("its seed is not 64 hexadecimal digits".to_owned()));
        }
        let is_late =
            |call: &&RunTestCall| call.order.is_some_and(|order| order >= MAX_ANSWER_ORDER_MICROS);
        if let Some(call) = file.calls.iter().find(is_late) {
            let (tool, place) = (&call.tool, &call.place);
            return Err(wrong(format!("the order of {tool} at {place} is too large")));
        }
        Ok(file)
    }

    /// What the file has, as a run on record with this script.
    pub(super) fn to_record(&self, script: &str) -> Result<RunRecord> {
        let damaged = |what: &str| {
            Problem::bad_script(format!("the test of {} has no usable {what}", self.script))
        };
        let seed = self.seed_bytes().ok_or_else(|| damaged("seed"))?;
        let clock = Duration::from_micros(u64::try_from(self.clock).unwrap_or(0));
        let (run, at) = (RecordId::new(), UNIX_EPOCH + clock);
        let began = RunBegan {
            run,
            call: None,
            caller: cli_caller(),
            at,
            script: script.to_owned(),
            timeout: None,
            seed,
            plan: false,
            follows: None,
            fork: None,
            secrets: RedactionScopes::default(),
        };
        let calls = self.calls.iter().map(|call| {
            let answer = match &call.answer {
                None => None,
                Some(answer) => {
                    let answer = Value::from_json(answer.clone())?;
                    Some(decode_answer(&answer).ok_or_else(|| damaged("answer"))?)
                }
            };
            Ok(call.to_record(run, self.effects_of(&call.tool), answer))
        });
        let calls = calls.collect::<Result<_>>()?;
        Ok(RunRecord { began, calls, paused: None, ended: None, removed_calls: 0 })
    }

    fn seed_bytes(&self) -> Option<[u8; 32]> {
        let byte = |at: usize| u8::from_str_radix(self.seed.get(at..at + 2)?, 16).ok();
        let seed: Option<Vec<u8>> = (0..self.seed.len()).step_by(2).map(byte).collect();
        seed?.try_into().ok()
    }

    fn effects_of(&self, tool: &str) -> CallEffects {
        let tool = self.tools.iter().find(|known| known.name == tool);
        tool.map_or(CallEffects::default(), RunTestTool::effects)
    }

    /// The tools as they were, which answer nothing by themselves.
    pub(super) fn stand_in_tools(&self) -> Result<Vec<Arc<Tool>>> {
        self.tools.iter().map(|tool| tool.to_stand_in().map(Arc::new)).collect()
    }
}

fn find_called_tool(catalog: &Catalog, name: &str) -> Result<Arc<Tool>> {
    catalog.find_tool(name).cloned().map_err(|_| {
        Problem::not_found(format!("the run has called {name}, which is not there now")).with_hint(
            "a test keeps the parameters of its tools: connect the source of this one first",
        )
    })
}

impl RunTestTool {
    fn from_tool(tool: &Tool) -> RunTestTool {
        RunTestTool {
            name: tool.name.clone(),
            original_name: tool.original_name.clone(),
            operation: tool.operation.clone(),
            source: tool.source.name.clone(),
            kind: match tool.source.kind {
                SourceKind::Host | SourceKind::Builtin => RunTestSource::Builtin,
                SourceKind::Script => RunTestSource::Script,
                SourceKind::Extension => RunTestSource::Extension,
                SourceKind::Upstream => RunTestSource::Upstream,
                SourceKind::Api => RunTestSource::Api,
                SourceKind::Saved => RunTestSource::Saved,
            },
            read_only: tool.effects.read_only,
            input: (**tool.input.json()).clone(),
        }
    }

    fn effects(&self) -> CallEffects {
        if self.read_only { CallEffects::READ_ONLY } else { CallEffects::default() }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn to_stand_in(&self) -> Result<Tool> {
        let kind = match self.kind {
            RunTestSource::Builtin => SourceKind::Builtin,
            RunTestSource::Script => SourceKind::Script,
            RunTestSource::Extension => SourceKind::Extension,
            RunTestSource::Upstream => SourceKind::Upstream,
            RunTestSource::Api => SourceKind::Api,
            RunTestSource::Saved => SourceKind::Saved,
        };
        let source = Arc::new(Source { kind, name: self.source.clone() });
        let body = ToolBody::from_fn(|_, _| Err(Problem::internal("a test makes no call")));
        let mut tool = Tool::new(&self.name, source, Schema::compile(self.input.clone())?, body);
        tool.original_name.clone_from(&self.original_name);
        tool.operation.clone_from(&self.operation);
        tool.effects = self.effects();
        tool.expose = ToolExposure::Code;
        tool.scope = Arc::new(CallScope::default());
        Ok(tool)
    }
}

impl RunTestCall {
    fn to_record(
        &self,
        run: RecordId,
        effects: CallEffects,
        answer: Option<Result<moonlark_core::content::ToolAnswer>>,
    ) -> CallRecord {
        let (call, caller) = (RecordId::new(), cli_caller());
        let ended = answer.map(|answer| CallEnded {
            call,
            caller: caller_key(&caller),
            took: Duration::ZERO,
            outcome: CallOutcome::from_result(&answer),
            message: None,
            answer: Some(answer),
            order: self.order,
        });
        let began = CallBegan {
            call,
            parent: None,
            run: Some(run),
            place: Some(self.place.clone()),
            at: UNIX_EPOCH,
            tool: self.tool.clone(),
            source: String::new(),
            effects,
            caller,
            args: Value::from_json(self.arguments.clone()).unwrap_or_default(),
            secrets: RedactionScopes::default(),
        };
        CallRecord { began, ended }
    }
}
