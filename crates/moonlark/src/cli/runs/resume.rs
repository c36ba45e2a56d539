//! `moonlark runs resume`: go on with a run that was interrupted.

use clap::Args;
use moonlark_core::content::ToolAnswer;
use moonlark_core::record_id::RecordId;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::Gateway;
use moonlark_journal::{RunSummary, RunView};
use serde::{Deserialize, Serialize};

use super::super::run::script_execution::answer_metadata;
use super::super::served_command::ServedCommand;
use super::super::source_args::SourceArgs;
use super::super::{
    CommandError, CommandResult, GlobalArgs, cli_caller, eprint_line, load_config, print_json,
};
use super::show;
use crate::project::Project;
use crate::project_journal;

#[derive(Args, Serialize, Deserialize)]
pub(crate) struct RunsResumeArgs {
    /// The run, or the plan: its id, or the beginning or end of it.
    id: String,
    /// The lost call took effect: continue without its answer. All lost calls, or the
    /// one at this place.
    #[arg(long, value_name = "PLACE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    assume_done: Vec<String>,
    /// The lost call did not take effect: make it again. All lost calls, or the one at
    /// this place.
    #[arg(long, value_name = "PLACE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    retry: Vec<String>,
    /// The lost call took effect, and this is its answer: the call at this place, or the
    /// only one.
    #[arg(long, value_name = "PLACE=JSON")]
    answer: Vec<String>,
    /// Carry out a plan another time, which does everything in it again.
    #[arg(long)]
    again: bool,
    #[serde(skip)]
    #[command(flatten)]
    servers: SourceArgs,
}

impl RunsResumeArgs {
    pub(super) async fn run(mut self, global: &GlobalArgs) -> CommandResult {
        // Before anything is started for it.
        project_journal::journal_reader(&load_config(global)?).find_run(&self.id)?;
        let servers = std::mem::take(&mut self.servers);
        ServedCommand::Resume(self).run(servers, global).await
    }

    pub(crate) async fn run_in(self, project: &Project, global: &GlobalArgs) -> CommandResult {
        let reader = project_journal::journal_reader(&project.loaded_config().await);
        let id = reader.find_run(&self.id)?;
        let mut args = Object::new();
        args.insert("resume".to_owned(), id.to_string().into());
        let before = reader.show_run(id)?;
        if let Some(lost) = self.lost_call_decisions()? {
            args.insert("lost".to_owned(), lost);
        }
        let answers = self.parse_answers(&before)?;
        if !answers.is_empty() {
            args.insert("answers".to_owned(), Value::Object(answers));
        }
        if self.again {
            args.insert("again".to_owned(), Value::Bool(true));
        }
        self.warn_of_missing_answers(&before);
        let asked = RecordId::new();
        let answer = resume_run(&project.gateway, args).await;
        project.flush_journal().await?;
        // What is on record says all there is to say, whether it ended or not. A plan
        // is carried out by a run of its own.
        let run = reader.show_run(answered_run_id(&answer).unwrap_or(id))?;
        if let Some(note) = nothing_done_note(&before, &run.line, asked) {
            eprint_line(note);
        }
        if global.json {
            print_json(&run.to_json())
        } else {
            show::print_run(&run)
        }
        match (answer, run.answer) {
            (Ok(_), _) => Ok(()),
            (Err(_), Some(Err(_))) => Err(CommandError::Said),
            (Err(problem), _) => Err(problem.into()),
        }
    }
}

impl RunsResumeArgs {
    /// The script gets nothing as the answer of a call that is assumed to be done.
    fn warn_of_missing_answers(&self, run: &RunView) {
        let named = |place: &str| self.assume_done.iter().any(|it| it.is_empty() || it == place);
        for call in show::calls_in_doubt(run) {
            let place = call.place.as_deref().unwrap_or_default();
            let answered = self.answer.iter().any(|it| it.starts_with(&format!("{place}=")));
            if named(place) && !answered {
                eprint_line(format!(
                    "the script is given nil as the answer of {} at {place}; if it needs more, stop and give it with --answer {place}=JSON (it can be given later as well)",
                    call.tool
                ));
            }
        }
    }

    /// What calls that may have happened have answered, by place.
    fn parse_answers(&self, run: &RunView) -> Result<Object> {
        let open = show::calls_in_doubt(run).chain(show::assumed_calls(run));
        let places: Vec<&str> = open.filter_map(|call| call.place.as_deref()).collect();
        let wrong = |text: &str, why: String| {
            Problem::bad_request(format!("--answer {text}: {why}"))
                .with_hint("write --answer PLACE=JSON, such as --answer '3={\"id\": 7}'")
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
    fn lost_call_decisions(&self) -> Result<Option<Value>> {
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
                .with_hint("write --retry=2 --assume-done=m1.3/1"))
            }
            places => {
                let of = |(place, word): &(&String, &str)| ((*place).clone(), Value::from(*word));
                Ok(Some(Value::Object(places.iter().map(of).collect())))
            }
        }
    }
}

/// What is said where all is as it was `asked` about: a run that ended by itself is only
/// shown, and a plan is carried out once.
fn nothing_done_note(before: &RunView, shown: &RunSummary, asked: RecordId) -> Option<String> {
    let (id, by) = (before.line.id, shown.id);
    if !before.line.plan {
        return before.answer.is_some().then(|| {
            format!(
                "run {id} had ended by itself: nothing was done, and this is how it ended; `moonlark run` runs its script anew"
            )
        });
    }
    (by != id && by < asked).then(|| {
        format!(
            "run {by} has carried out the plan before, and is shown: nothing of it was done twice; --again carries the plan out another time"
        )
    })
}

async fn resume_run(gateway: &Gateway, args: Object) -> Result<ToolAnswer> {
    let call = gateway.open_call(cli_caller())?;
    gateway.invoke(&call, "execute", Value::Object(args)).await
}

/// The run that an answer, or a Problem, is of.
fn answered_run_id(answer: &Result<ToolAnswer>) -> Option<RecordId> {
    answer_metadata(answer)?.get("id")?.as_str()?.parse().ok()
}
