//! Approval ticket: what the caller gets when a call has to be approved first.

use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Value as Json, json};

use crate::problem::{Problem, ProblemCode};
use crate::record_id::RecordId;
use crate::secret::SecretText;
use crate::tool::{CallEffects, EffectKind};

/// What is said first where arguments are not shown whole.
pub const ARGUMENTS_LEFT_OUT_NOTICE: &str = "some of the arguments are too long to be shown here: \
     `moonlark approvals show` shows all of them, and that is where to decide";

/// What whoever asked is told of a decision that is to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalTicket {
    pub id: RecordId,
    /// Proves that its holder was told. Only for who made the call.
    pub token: SecretText,
    pub expires: SystemTime,
    pub tool: String,
    pub effects: CallEffects,
    pub arguments: ShownArguments,
    pub run: Option<RecordId>,
    /// Whether the call was made at this machine's command line: by whoever may
    /// decide there.
    pub at_command_line: bool,
    /// Whether the caller's user may decide, and coming back with the token does.
    pub by_caller: bool,
}

/// The arguments of a call as whoever decides on it is shown them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownArguments {
    /// As JSON text.
    pub text: String,
    /// Whether there is more than the text says.
    pub left_out: bool,
}

impl ApprovalTicket {
    /// Whether the caller's user may decide: nobody decides on what they do not see.
    pub fn can_caller_decide(&self) -> bool {
        self.by_caller && !self.arguments.left_out
    }

    /// For whoever reads it; the token only where it is theirs, and decides.
    pub fn to_json(&self, with_token: bool) -> Json {
        let with_token = with_token && self.can_caller_decide();
        let text = &self.arguments.text;
        let arguments = serde_json::from_str::<Json>(text);
        let effects: Vec<&str> =
            EffectKind::all_for_effects(self.effects).map(EffectKind::as_str).collect();
        let mut json = json!({});
        if self.arguments.left_out {
            json["left_out"] = ARGUMENTS_LEFT_OUT_NOTICE.into();
        }
        json["id"] = self.id.to_string().into();
        json["expires_at"] = format_timestamp(self.expires).into();
        json["tool"] = self.tool.as_str().into();
        json["arguments"] = arguments.unwrap_or_else(|_| text.as_str().into());
        json["effects"] = effects.into();
        json["how"] = self.next_step_text(with_token).into();
        if with_token {
            json["token"] = self.token.expose_secret().into();
        }
        if let Some(run) = self.run {
            json["run"] = run.to_string().into();
        }
        json
    }

    /// How to go on. Whoever asks is not told how to approve: that is for others,
    /// unless the operator says so.
    fn next_step_text(&self, with_token: bool) -> String {
        let id = self.id;
        if self.at_command_line {
            let next = match self.run {
                Some(run) => format!("the run then goes on; `moonlark runs {run}` shows it"),
                None => "then make the same call again".to_owned(),
            };
            return format!(
                "show the whole call: `moonlark approvals show {id}`; approve it: `moonlark approvals approve {id}`; {next}"
            );
        }
        let ask = if self.arguments.left_out {
            format!(
                "ask the operator of this server to look at approval {id} with `moonlark approvals show`, where all arguments are seen, and to decide on it"
            )
        } else {
            format!("ask your user, or the operator of this server, to decide on approval {id}")
        };
        match (self.run, with_token) {
            (Some(run), true) => format!(
                "POST /approvals/{id}/approve with the header Moonlark-Approval and the token; the run goes on by itself: GET /runs/{run}"
            ),
            (Some(run), false) => {
                format!(
                    "{ask}; the run then goes on, and execute with resume = \"{run}\" gives its result"
                )
            }
            (None, true) => {
                "send the same request again with the header Moonlark-Approval and the token"
                    .to_owned()
            }
            (None, false) => format!("{ask}; then make the same call again"),
        }
    }

    /// The Problem of a call that waits for a decision.
    pub fn into_problem(self) -> Problem {
        let message = match self.run {
            None => format!("tool '{}' requires approval", self.tool),
            Some(run) => format!("run {run} waits for approval of {}", self.tool),
        };
        let mut problem = Problem::new(ProblemCode::ApprovalRequired, message)
            .with_hint(self.next_step_text(false));
        problem.approval = Some(Box::new(self));
        problem
    }
}

/// `2026-11-16T07:40:12Z`
fn format_timestamp(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::MAX);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_token_is_handed_over_and_printed_nowhere_else() {
        let ticket = ApprovalTicket {
            id: RecordId::new(),
            token: "apr_words".into(),
            expires: SystemTime::UNIX_EPOCH,
            tool: "remove".to_owned(),
            effects: CallEffects::default(),
            arguments: ShownArguments { text: "{}".to_owned(), left_out: false },
            run: None,
            at_command_line: false,
            by_caller: true,
        };
        assert_eq!(ticket.to_json(true)["token"], "apr_words");
        assert_eq!(ticket.to_json(false).get("token"), None);
        let printed = format!("{ticket:?} {:?}", ticket.clone().into_problem());
        assert!(printed.contains("remove") && !printed.contains("apr_words"), "{printed}");
    }

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(format_timestamp(time), text);
        }
    }
}
