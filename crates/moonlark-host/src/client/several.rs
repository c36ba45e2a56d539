//! Several questions at once, by their names.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use moonlark_core::value::shorten;
use moonlark_core::{Call, Problem, Result, Value};
use schemars::JsonSchema;
use serde::Deserialize;

use super::elicit::Elicit;
use super::sample::{self, Sample};
use super::{ask, roots, roots_question};
use crate::args::Table;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Questions {
    /// The questions by their names. Each has the options of the function it
    /// stands for, and beside them one of `elicit` (the message), `sample` (the
    /// messages) and `roots` (true). A client that knows the names can send
    /// answers along with its request.
    #[schemars(with = "BTreeMap<String, Table>")]
    questions: BTreeMap<String, Named>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    elicit: Option<String>,
    schema: Option<Table>,
    url: Option<String>,
    sample: Option<Value>,
    system: Option<String>,
    max_tokens: Option<u32>,
    temperature: Option<f64>,
    stop: Option<Vec<String>>,
    model: Option<String>,
    roots: Option<bool>,
}

enum Kind {
    Elicit(Elicit),
    Sample(Sample),
    Roots,
}

pub(super) async fn ask_all(call: &Call, args: Questions) -> Result<Table> {
    let most = call.limits().parallel as usize;
    if args.questions.len() > most {
        return Err(Problem::bad_request(format!("more than {most} questions at once"))
            .hint("ask some of them later, or raise limits.parallel"));
    }
    let mut kinds = Vec::with_capacity(args.questions.len());
    for (name, named) in args.questions {
        let kind = kind(&name, named)?;
        let mut question = match &kind {
            Kind::Elicit(elicit) => elicit.question()?,
            Kind::Sample(sample) => sample.question()?,
            Kind::Roots => roots_question(),
        };
        question.name = Some(name.clone());
        kinds.push((name, kind, question));
    }
    let asks = kinds.into_iter().map(|(name, kind, question)| async {
        let answer = ask(call, question).await?;
        let answer = match kind {
            Kind::Elicit(elicit) => elicit.answer(answer)?.into(),
            Kind::Sample(_) => sample::answer(answer)?.into(),
            Kind::Roots => roots(answer)?.into(),
        };
        Ok::<_, Problem>((name, answer))
    });
    Ok(Table(try_join_all(asks).await?.into_iter().collect()))
}

fn kind(name: &str, named: Named) -> Result<Kind> {
    let Named { schema, url, system, max_tokens, temperature, stop, model, .. } = named;
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
            Ok(Kind::Elicit(Elicit { message, schema, url }))
        }
        (None, Some(messages), None) if !for_form => {
            let max_tokens = max_tokens.unwrap_or_else(sample::max_tokens);
            Ok(Kind::Sample(Sample { messages, system, max_tokens, temperature, stop, model }))
        }
        (None, None, Some(true)) if !for_form && !for_model => Ok(Kind::Roots),
        _ => Err(Problem::bad_request(format!(
            "{} must have one of elicit, sample and roots, and only its options",
            shorten(name)
        ))),
    }
}
