//! Batches of questions, by their names.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;

use super::elicit::ClientElicitArgs;
use super::sample::{self, ClientSampleArgs, ClientSampled};
use super::{ask_caller, parse_answer, parse_roots, roots_question};
use crate::args::ScriptTable;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientAskArgs {
    /// The questions by their names. Each has the options of the function it
    /// stands for, and beside them one of `elicit` (the message), `sample` (the
    /// messages) and `roots` (true). A client that knows the names can send
    /// answers along with its request.
    #[schemars(with = "BTreeMap<String, ScriptTable>")]
    questions: BTreeMap<String, NamedQuestion>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedQuestion {
    elicit: Option<String>,
    schema: Option<ScriptTable>,
    url: Option<String>,
    sample: Option<Value>,
    system: Option<String>,
    max_tokens: Option<u32>,
    temperature: Option<f64>,
    stop: Option<Vec<String>>,
    model: Option<String>,
    roots: Option<bool>,
}

enum QuestionKind {
    Elicit(ClientElicitArgs),
    Sample(ClientSampleArgs),
    Roots,
}

pub(super) async fn ask_all(call: &Call, args: ClientAskArgs) -> Result<ScriptTable> {
    let most = call.limits().parallel as usize;
    if args.questions.len() > most {
        return Err(Problem::bad_request(format!("more than {most} questions at once"))
            .with_hint("ask some of them later, or raise limits.parallel"));
    }
    let mut kinds = Vec::with_capacity(args.questions.len());
    for (name, named) in args.questions {
        let kind = parse_question_kind(&name, named)?;
        let mut question = match &kind {
            QuestionKind::Elicit(elicit) => elicit.to_question()?,
            QuestionKind::Sample(sample) => sample.to_question()?,
            QuestionKind::Roots => roots_question(),
        };
        question.name = Some(name.clone());
        kinds.push((name, kind, question));
    }
    let asks = kinds.into_iter().map(|(name, kind, question)| async {
        let answer = ask_caller(call, question).await?;
        let answer = match kind {
            QuestionKind::Elicit(elicit) => elicit.check_answer(answer)?.into(),
            QuestionKind::Sample(_) => parse_answer::<ClientSampled>(answer)?.into(),
            QuestionKind::Roots => parse_roots(answer)?.into(),
        };
        Ok::<_, Problem>((name, answer))
    });
    Ok(ScriptTable(try_join_all(asks).await?.into_iter().collect()))
}

fn parse_question_kind(name: &str, named: NamedQuestion) -> Result<QuestionKind> {
    let NamedQuestion { schema, url, system, max_tokens, temperature, stop, model, .. } = named;
    let (for_form, for_model) = (
        schema.is_some() || url.is_some(),
        system.is_some()
            || max_tokens.is_some()
            || temperature.is_some()
            || stop.is_some()
            || model.is_some(),
    );
    match (named.elicit, named.sample, named.roots) {
        (Some(message), None, None) if !for_model => {
            Ok(QuestionKind::Elicit(ClientElicitArgs { message, schema, url }))
        }
        (None, Some(messages), None) if !for_form => {
            let max_tokens = max_tokens.unwrap_or_else(sample::default_max_tokens);
            Ok(QuestionKind::Sample(ClientSampleArgs {
                messages,
                system,
                max_tokens,
                temperature,
                stop,
                model,
            }))
        }
        (None, None, Some(true)) if !for_form && !for_model => Ok(QuestionKind::Roots),
        _ => Err(Problem::bad_request(format!(
            "{} must have one of elicit, sample and roots, and only its options",
            shorten_text(name)
        ))),
    }
}
