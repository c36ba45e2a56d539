//! The answer of `execute`, from what a script ended with.
//!
//! The result comes first. What was printed is one more text, and with the
//! calls and their times it is in `_meta`, where it costs the agent nothing.

use moonlark_core::Result;
use moonlark_core::content::{Content, ToolAnswer, is_content_block};
use moonlark_core::limits::format_size;
use moonlark_core::problem::Problem;
use moonlark_core::sdk::to_identifier;
use moonlark_core::value::{Object, Value, ValueBudget, ValuePath};
use moonlark_gateway::artifacts::preview_value;
use moonlark_gateway::run::{ForkReport, RESULT_ARTIFACT_PLACE, RUN_META_KEY};
use moonlark_gateway::{Call, CallOutcome, Run};
use moonlark_render::luau::luau_type_of;

use crate::run_trace::RunTracer;

use super::{AGENT_SCRIPT_NAME, answer_values, fork_encoding};

/// Bytes of log lines in the text.
const MAX_LOG_TEXT_BYTES: usize = 4096;
/// Calls on record in the answer.
const MAX_REPORTED_CALLS: usize = 1000;
/// Bytes of a preview.
const MAX_PREVIEW_BYTES: usize = 2048;
/// Images and the like that are taken out of an object.
const MAX_EXTRACTED_BLOCKS: usize = 100;

pub(super) fn build_answer(
    ended: Result<Value>,
    script: &str,
    run: &Run,
    call: &Call,
    limit: usize,
) -> Result<ToolAnswer> {
    let said = run.log_lines();
    let forked = run.fork_report();
    let ended = ended.and_then(|value| {
        // Whoever wants the one value must not get the log with it.
        let is_alone = said.is_empty() && forked.as_ref().is_none_or(ForkReport::is_unchanged);
        let beside = (!is_alone && value.get("content").is_none()).then(|| value.clone());
        let mut content = content_from_value(value, call, limit)?;
        content.structured = content.structured.or(beside);
        Ok(content)
    });
    match ended {
        Ok(mut content) => {
            add_run_report(&mut content, said, run, forked.as_ref(), limit);
            Ok(ToolAnswer::Content(content))
        }
        Err(mut problem) => {
            let mut content = match problem.content.take() {
                Some(content) => *content,
                None => content_from_problem(&problem, script),
            };
            add_run_report(&mut content, said, run, forked.as_ref(), limit);
            problem.content = Some(Box::new(content));
            Err(problem)
        }
    }
}

/// The result as content: content as it is, an object as structure and text,
/// anything else as text.
fn content_from_value(value: Value, call: &Call, limit: usize) -> Result<Content> {
    let text = match &value {
        Value::Str(text) => text.clone(),
        other => other.encode_json("result")?,
    };
    if text.len() > limit {
        return store_large_result(value, text.len(), call, limit);
    }
    if let Some(blocks) = read_blocks(&value, call)? {
        return Ok(content_from_blocks(blocks));
    }
    if let Some(whole) = with_content_restored(&value, call)?
        && let ToolAnswer::Content(content) = ToolAnswer::from_script_result(whole)?
    {
        return Ok(content);
    }
    let mut content = content_from_blocks(vec![text_block(&text)]);
    let mut found =
        BlockCollector { call, blocks: Vec::new(), budget: ValueBudget::new(call.limits().value) };
    found.collect_blocks(&value, &mut ValuePath::new("result"))?;
    content.blocks.append(&mut found.blocks);
    let only_text = matches!(value, Value::Str(_));
    content.structured = (!only_text).then_some(value);
    Ok(content)
}

fn content_from_blocks(blocks: Vec<Value>) -> Content {
    Content { blocks, structured: None, extra: Object::new() }
}

/// The blocks that a value is: one, or a list of them in which texts are plain.
fn read_blocks(value: &Value, call: &Call) -> Result<Option<Vec<Value>>> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        Value::Object(_) => std::slice::from_ref(value),
        _ => return Ok(None),
    };
    let mut blocks = Vec::new();
    let mut only_texts = true;
    for item in items {
        let block = match item {
            Value::Str(text) => text_block(text),
            other => {
                only_texts = false;
                let restored = answer_values::restore_block(other, call)?;
                restored.unwrap_or_else(|| other.clone())
            }
        };
        if !is_content_block(&block) {
            return Ok(None);
        }
        blocks.push(block);
    }
    // Texts are a value, unless a tool gave just these.
    let given = || only_texts && call.run().is_some_and(|run| run.is_remembered_text_list(value));
    Ok((!only_texts || given()).then_some(blocks))
}

/// An object that may be a result in the words of MCP, with the bytes of its
/// content in place.
fn with_content_restored(value: &Value, call: &Call) -> Result<Option<Value>> {
    let items = match value.get("content") {
        Some(Value::Array(items)) => items.as_slice(),
        // An empty table may be either.
        Some(Value::Object(none))
            if none.is_empty() && value.get("structuredContent").is_some() =>
        {
            &[]
        }
        _ => return Ok(None),
    };
    let mut blocks = Vec::new();
    for item in items {
        blocks.push(answer_values::restore_block(item, call)?.unwrap_or_else(|| item.clone()));
    }
    let mut whole = value.clone();
    if let Value::Object(fields) = &mut whole {
        fields.insert("content".to_owned(), Value::Array(blocks));
    }
    Ok(Some(whole))
}

/// Images and the like inside an object: it keeps their handles, and they come
/// after it.
struct BlockCollector<'a> {
    call: &'a Call,
    blocks: Vec<Value>,
    budget: ValueBudget,
}

impl BlockCollector<'_> {
    fn collect_blocks(&mut self, value: &Value, path: &mut ValuePath) -> Result<()> {
        match value {
            Value::Object(fields) => {
                if self.blocks.len() < MAX_EXTRACTED_BLOCKS
                    && let Some(block) = answer_values::restore_block(value, self.call)?
                    && is_content_block(&block)
                {
                    let bytes = block.to_json_lossy().to_string().len();
                    self.budget.spend_bytes(bytes, path)?;
                    self.blocks.push(block);
                    return Ok(());
                }
                for (key, field) in fields {
                    path.push_key(key)?;
                    self.collect_blocks(field, path)?;
                    path.pop();
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    path.push_index(index)?;
                    self.collect_blocks(item, path)?;
                    path.pop();
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// A result that is too long to show: its beginning, its shape, and a handle.
fn store_large_result(value: Value, bytes: usize, call: &Call, limit: usize) -> Result<Content> {
    let (begins, shape) =
        (preview_value(&value, MAX_PREVIEW_BYTES.min(limit)), luau_type_of(&value));
    let of = (call.tool(), call.caller());
    let part = artifact_part_options(&value);
    let (artifacts, limits) = (call.gateway().artifacts(), call.limits());
    let handle = match call.run() {
        // The same when the run is resumed, or forked.
        Some(run) => {
            let handle = run.artifact_handle(RESULT_ARTIFACT_PLACE, 0);
            artifacts.put_value_as(handle, value, of, limits)?
        }
        None => artifacts.put_value(value, of, limits)?,
    };
    let text = format!(
        "The result has {}, more than the {} that are shown. It is kept as {handle}.\n\
         Read it in a later script: artifact(\"{handle}\"), or a part of it: \
         artifact(\"{handle}\", {{ {part} }}).\n\
         shape: {shape}\npreview: {begins}",
        format_size(bytes),
        format_size(limit)
    );
    let mut content = content_from_blocks(vec![text_block(&text)]);
    content.structured = Some(Value::from_fields([
        ("artifact", handle.as_str().into()),
        ("size", Value::Int(bytes as i64)),
        ("shape", shape.into()),
        ("preview", begins.into()),
    ]));
    Ok(content)
}

/// Options of `artifact` that read a part of just this value: of its longest list,
/// or its longest text.
fn artifact_part_options(value: &Value) -> String {
    const FIRST_ITEMS_OPTIONS: &str = "from = 1, count = 100";
    let length = |value: &Value| match value {
        Value::Array(items) => items.len(),
        Value::Str(text) => text.len() / 100,
        Value::Object(fields) => fields.len(),
        _ => 0,
    };
    let Value::Object(fields) = value else { return FIRST_ITEMS_OPTIONS.to_owned() };
    let named = fields.iter().filter(|(name, _)| to_identifier(name) == **name);
    match named.max_by_key(|(_, field)| length(field)) {
        Some((name, Value::Array(_) | Value::Str(_))) => {
            format!("path = {name:?}, {FIRST_ITEMS_OPTIONS}")
        }
        Some((name, _)) => format!("path = {name:?}"),
        None => FIRST_ITEMS_OPTIONS.to_owned(),
    }
}

fn content_from_problem(problem: &Problem, script: &str) -> Content {
    let text = match &problem.place {
        Some(place) if *place.file == *AGENT_SCRIPT_NAME => {
            problem.to_text_with_source_line(script)
        }
        _ => problem.to_string(),
    };
    let mut content = content_from_blocks(vec![text_block(&text)]);
    if let Ok(error) = Value::from_json(problem.to_json()) {
        content.structured = Some(Value::from_fields([("error", error)]));
    }
    content
}

/// Add what the script said and called.
fn add_run_report(
    content: &mut Content,
    said: Vec<String>,
    run: &Run,
    forked: Option<&ForkReport>,
    limit: usize,
) {
    if !said.is_empty() {
        let text = format!("logs:\n{}", first_lines(&said, MAX_LOG_TEXT_BYTES).join("\n"));
        content.blocks.push(text_block(&text));
    }
    // What a fork that was not changed answers is what the run answered.
    if let Some(forked) = forked.filter(|it| !it.is_unchanged()) {
        content.blocks.push(text_block(&fork_encoding::describe_fork(forked)));
    }
    let millis =
        |time: std::time::Duration| Value::Float((time.as_secs_f64() * 1e4).round() / 10.0);
    let calls = run.steps().into_iter().take(MAX_REPORTED_CALLS).map(|step| {
        let outcome = match step.outcome {
            CallOutcome::Running => CallOutcome::Cancelled,
            ended => ended,
        };
        let took = step.took.unwrap_or_else(|| run.elapsed().saturating_sub(step.at));
        let told = [
            ("tool", Value::from(step.tool)),
            ("at", millis(step.at)),
            ("ms", millis(took)),
            ("outcome", outcome.as_str().into()),
        ];
        let mut told: Object =
            told.map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
        if let Some(place) = step.place {
            told.insert("place".to_owned(), place.to_string().into());
        }
        if step.replayed {
            told.insert("replayed".to_owned(), Value::Bool(true));
        }
        Value::Object(told)
    });
    let mut told = Value::from_fields([
        ("id", run.id().to_string().into()),
        ("logs", first_lines(&said, limit).into()),
        ("calls", Value::Array(calls.collect())),
        ("ms", millis(run.elapsed())),
    ]);
    if let (Some(forked), Value::Object(told)) = (forked, &mut told) {
        told.insert("fork".to_owned(), fork_encoding::encode_fork(forked));
    }
    let mut meta = match content.extra.swap_remove("_meta") {
        Some(Value::Object(meta)) => meta,
        _ => Object::new(),
    };
    meta.insert(RUN_META_KEY.to_owned(), told);
    content.extra.insert("_meta".to_owned(), Value::Object(meta));
}

/// Add what was seen of a run that was looked at.
pub(super) fn add_trace(
    answer: &mut Result<ToolAnswer>,
    tracer: &RunTracer,
    script: &str,
    run: &Run,
) {
    let content = match answer {
        Ok(ToolAnswer::Content(content)) => content,
        Ok(_) => return,
        Err(problem) => match &mut problem.content {
            Some(content) => content.as_mut(),
            None => return,
        },
    };
    let trace = tracer.encode(script, |at| run.shown_answer(at).map(Value::from));
    if let Some(Value::Object(meta)) = content.extra.get_mut("_meta")
        && let Some(Value::Object(told)) = meta.get_mut(RUN_META_KEY)
    {
        told.insert("trace".to_owned(), trace);
    }
}

/// The first lines that fit, and how many more there are.
fn first_lines(lines: &[String], mut room: usize) -> Vec<String> {
    let mut shown = Vec::new();
    for line in lines {
        if line.len() >= room {
            // A long line, to where the room ends.
            shown.push(format!("{}…", &line[..line.floor_char_boundary(room)]));
            break;
        }
        room -= line.len() + 1;
        shown.push(line.clone());
    }
    let more = lines.len() - shown.len();
    if more > 0 {
        shown.push(format!("… and {more} more lines"));
    }
    shown
}

fn text_block(text: &str) -> Value {
    Value::from_fields([("type", "text".into()), ("text", text.into())])
}
