//! `moonlark runs resume`: go on with a run that was interrupted.

use clap::Args;
use moonlark_core::content::Answer;
use moonlark_core::journal::Id;
use moonlark_core::value::Object;
use moonlark_core::{Gateway, Problem, Result, Value};
use moonlark_store::RunShown;

use super::super::servers::Servers;
use super::super::{Done, Failure, Global, caller, print_json, say};
use super::{load, show};
use crate::journal;

#[derive(Args)]
pub(super) struct Resume {
    /// The run, or the plan: its id, or the beginning or end of it.
    id: String,
    /// A call that may have happened has happened: go on without its answer. All
    /// of them, or the one at this place.
    #[arg(long, value_name = "PLACE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    assume_done: Vec<String>,
    /// A call that may have happened has not: make it. All of them, or the one at
    /// this place.
    #[arg(long, value_name = "PLACE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    retry: Vec<String>,
    /// A call that may have happened has happened, and this is what it answered: the
    /// one at this place, or the only one.
    #[arg(long, value_name = "PLACE=JSON")]
    answer: Vec<String>,
    /// Carry out a plan another time, which does everything in it again.
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    servers: Servers,
}

impl Resume {
    pub(super) async fn run(self, global: &Global) -> Done {
        let reader = journal::reader(&load(global)?);
        let id = reader.find(&self.id)?;
        let mut args = Object::new();
        args.insert("resume".to_owned(), id.to_string().into());
        let before = reader.run(id)?;
        if let Some(lost) = self.decided()? {
            args.insert("lost".to_owned(), lost);
        }
        let answers = self.answers(&before)?;
        if !answers.is_empty() {
            args.insert("answers".to_owned(), Value::Object(answers));
        }
        if self.again {
            args.insert("again".to_owned(), Value::Bool(true));
        }
        self.warn_of_missing_answers(&before);
        let project = self.servers.open(global).await?;
        project.connect().await;
        project.keep_journal().await;
        let answer = resume(&project.gateway, args).await;
        project.disconnect().await;
        // What is on record says all there is to say, whether it ended or not. A plan
        // is carried out by a run of its own.
        let run = reader.run(ran_as(&answer).unwrap_or(id))?;
        match global.json {
            true => print_json(&run.to_json()),
            false => show::print_run(&run),
        }
        match (answer, run.answer) {
            (Ok(_), _) => Ok(()),
            (Err(_), Some(Err(_))) => Err(Failure::Said),
            (Err(problem), _) => Err(problem.into()),
        }
    }
}

impl Resume {
    /// The script gets nothing as the answer of a call that is assumed to be done.
    fn warn_of_missing_answers(&self, run: &RunShown) {
        let named = |place: &str| self.assume_done.iter().any(|it| it.is_empty() || it == place);
        for call in show::calls_in_doubt(run) {
            let place = call.place.as_deref().unwrap_or_default();
            let answered = self.answer.iter().any(|it| it.starts_with(&format!("{place}=")));
            if named(place) && !answered {
                say(format!(
                    "the script is given nil as the answer of {} at {place}; if it needs more, stop and give it with --answer {place}=JSON (it can be given later as well)",
                    call.tool
                ));
            }
        }
    }

    /// What calls that may have happened have answered, by place.
    fn answers(&self, run: &RunShown) -> Result<Object> {
        let open = show::calls_in_doubt(run).chain(show::assumed(run));
        let places: Vec<&str> = open.filter_map(|call| call.place.as_deref()).collect();
        let wrong = |text: &str, why: String| {
            Problem::bad_request(format!("--answer {text}: {why}"))
                .hint("write --answer PLACE=JSON, such as --answer '3={\"id\": 7}'")
        };
        let mut answers = Object::new();
        for text in &self.answer {
            let named = text.split_once('=').filter(|(place, _)| places.contains(place));
            let (place, json) = match (named, places.as_slice()) {
                (Some((place, json)), _) => (place, json),
                (None, [only]) => (*only, text.as_str()),
                (None, []) => {
                    return Err(wrong(text, "no call of this run waits for an answer".to_owned()));
                }
                (None, _) => {
                    let places = places.join(", ");
                    return Err(wrong(text, format!("it is for one of the places {places}")));
                }
            };
            let answer = Value::parse_json(json.as_bytes())
                .map_err(|problem| wrong(text, problem.message))?;
            answers.insert(place.to_owned(), answer);
        }
        Ok(answers)
    }

    /// What is to be done about calls that may have happened, if anything.
    fn decided(&self) -> Result<Option<Value>> {
        let retry = self.retry.iter().map(|place| (place, "retry"));
        let done = self.assume_done.iter().map(|place| (place, "assume-done"));
        let all: Vec<(&String, &str)> = retry.chain(done).collect();
        match all.as_slice() {
            [] => Ok(None),
            [(place, word)] if place.is_empty() => Ok(Some(Value::from(*word))),
            places if places.iter().any(|(place, _)| place.is_empty()) => {
                Err(Problem::bad_request(
                    "--retry and --assume-done: for all calls, or each with a place",
                )
                .hint("write --retry=2 --assume-done=m1.3/1"))
            }
            places => {
                let of = |(place, word): &(&String, &str)| ((*place).clone(), Value::from(*word));
                Ok(Some(Value::Object(places.iter().map(of).collect())))
            }
        }
    }
}

async fn resume(gateway: &Gateway, args: Object) -> Result<Answer> {
    let call = gateway.open(caller(), None)?;
    gateway.ask(&call, "execute", Value::Object(args)).await
}

/// The run that an answer, or a Problem, is of.
fn ran_as(answer: &Result<Answer>) -> Option<Id> {
    let content = match answer {
        Ok(Answer::Content(content)) => content,
        Ok(_) => return None,
        Err(problem) => problem.content.as_ref()?,
    };
    let told = content.extra.get("_meta")?.get("moonlark/run")?;
    told.get("id")?.as_str()?.parse().ok()
}
