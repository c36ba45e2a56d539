//! `moonlark runs resume`: go on with a run that was interrupted.

use clap::Args;
use moonlark_core::content::Answer;
use moonlark_core::journal::Id;
use moonlark_core::value::Object;
use moonlark_core::{Gateway, Problem, Result, Value};

use super::super::servers::Servers;
use super::super::{Done, Failure, Global, caller, print};
use super::{load, show};
use crate::journal;

#[derive(Args)]
pub(super) struct Resume {
    /// The run: its id, or the end of it.
    id: String,
    /// A call that may have happened has happened: go on without its answer. All
    /// of them, or the one at this place.
    #[arg(long, value_name = "PLACE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    assume_done: Vec<String>,
    /// A call that may have happened has not: make it. All of them, or the one at
    /// this place.
    #[arg(long, value_name = "PLACE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    retry: Vec<String>,
    #[command(flatten)]
    servers: Servers,
}

impl Resume {
    pub(super) async fn run(self, global: &Global) -> Done {
        let reader = journal::reader(&load(global)?);
        let id = reader.find(&self.id)?;
        let mut args = Object::new();
        args.insert("resume".to_owned(), id.to_string().into());
        if let Some(lost) = self.decided()? {
            args.insert("lost".to_owned(), lost);
        }
        let project = self.servers.open(global).await?;
        project.connect().await;
        project.keep_journal().await;
        let answer = resume(&project.gateway, args).await;
        project.disconnect().await;
        // What is on record says all there is to say, whether it ended or not. A plan
        // is carried out by a run of its own.
        let run = reader.run(ran_as(&answer).unwrap_or(id))?;
        match global.json {
            true => print(&run.to_json().to_string()),
            false => show::lines(&run).iter().for_each(|line| print(line)),
        }
        match (answer, run.answer) {
            (Ok(_), _) => Ok(()),
            (Err(_), Some(Err(_))) => Err(Failure::Said),
            (Err(problem), _) => Err(problem.into()),
        }
    }
}

impl Resume {
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
