//! The state of a task, as its client is told it.

use std::time::SystemTime;

use moonlark_core::content::ToolAnswer;
use moonlark_core::{Problem, Result};
use rmcp::model::{CallToolResponse, ErrorData, InputResponses};
use serde_json::{Map, Value as Json, json};

use super::super::tool_result::{AnswerForm, tool_response};
use super::timestamp;

pub(super) struct OwnTaskState {
    updated: SystemTime,
    /// What the client still has to answer, by name.
    questions: Map<String, Json>,
    outcome: Option<TaskOutcome>,
}

/// How a task has ended.
pub(super) enum TaskOutcome {
    /// As the call would have been answered.
    Completed(Json),
    /// With an error of the protocol.
    Failed(Json),
    Cancelled,
}

impl OwnTaskState {
    pub(super) fn new() -> Self {
        Self { updated: SystemTime::now(), questions: Map::new(), outcome: None }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.outcome.is_some()
    }

    pub(super) fn set_questions(&mut self, questions: Map<String, Json>) {
        if self.questions != questions {
            self.questions = questions;
            self.updated = SystemTime::now();
        }
    }

    /// What was answered is asked no longer.
    pub(super) fn note_answered(&mut self, responses: &InputResponses) {
        self.questions.retain(|key, _| !responses.contains_key(key));
        self.updated = SystemTime::now();
    }

    pub(super) fn end_with(&mut self, outcome: TaskOutcome) {
        self.questions.clear();
        self.outcome = Some(outcome);
        self.updated = SystemTime::now();
    }

    pub(super) fn result_bytes(&self) -> usize {
        self.outcome.as_ref().map_or(0, TaskOutcome::approx_bytes)
    }

    pub(super) fn describe(&self, said: &mut Json) {
        said["lastUpdatedAt"] = timestamp(self.updated).into();
        match &self.outcome {
            None if self.questions.is_empty() => said["status"] = "working".into(),
            None => {
                said["status"] = "input_required".into();
                said["inputRequests"] = Json::Object(self.questions.clone());
            }
            Some(outcome) => outcome.describe(said),
        }
    }
}

impl TaskOutcome {
    pub(super) fn from_answer(ended: Result<ToolAnswer>, form: AnswerForm) -> TaskOutcome {
        match tool_response(ended, form) {
            Ok(CallToolResponse::Complete(result)) => TaskOutcome::Completed(json!(result)),
            // An upstream server has a task of its own, or a question of a later version.
            Ok(_) => TaskOutcome::failed("the tool answered with something that no task can be"),
            Err(error) => TaskOutcome::from_error(&error),
        }
    }

    pub(super) fn from_error(error: &ErrorData) -> TaskOutcome {
        TaskOutcome::Failed(json!(error))
    }

    pub(super) fn from_problem(problem: &Problem) -> TaskOutcome {
        TaskOutcome::Failed(json!({
            "code": rmcp::model::ErrorCode::INTERNAL_ERROR.0,
            "message": problem.to_line(),
            "data": problem.to_json(),
        }))
    }

    fn failed(message: &str) -> TaskOutcome {
        TaskOutcome::from_problem(&Problem::tool_error(message))
    }

    pub(super) fn too_large() -> TaskOutcome {
        TaskOutcome::failed(
            "the results of all tasks are too large to be kept: call it without tasks",
        )
    }

    pub(super) fn describe(&self, said: &mut Json) {
        match self {
            TaskOutcome::Completed(result) => {
                said["status"] = "completed".into();
                said["result"] = result.clone();
            }
            TaskOutcome::Failed(error) => {
                said["status"] = "failed".into();
                said["error"] = error.clone();
            }
            TaskOutcome::Cancelled => said["status"] = "cancelled".into(),
        }
    }

    pub(super) fn approx_bytes(&self) -> usize {
        match self {
            TaskOutcome::Completed(json) | TaskOutcome::Failed(json) => json.to_string().len(),
            TaskOutcome::Cancelled => 0,
        }
    }
}
