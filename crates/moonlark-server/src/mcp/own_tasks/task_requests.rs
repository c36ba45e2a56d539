//! Requests about tasks of ours: `tasks/get`, `tasks/update` and `tasks/cancel`.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ErrorData, GetTaskResult, UpdateTaskParams};
use rmcp::service::RequestContext;

use super::super::McpServer;
use super::super::mcp_caller::caller_from_request;
use super::super::tool_result::error_from_problem;
use super::recorded_task::{RecordedTask, find_recorded_task};
use super::{OwnTask, find_task, unknown_task_error};

impl McpServer {
    pub(in super::super) async fn get_own_task(
        &self,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let caller = caller_from_request(context, &self.session);
        let found = match find_task(id, &caller) {
            Some(task) => Some(task.to_json()),
            None => {
                find_recorded_task(self, &caller, id, context).await.map(RecordedTask::into_json)
            }
        };
        let task = found.ok_or_else(|| unknown_task_error(id))?;
        serde_json::from_value(task)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    pub(in super::super) async fn update_own_task(
        &self,
        request: UpdateTaskParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if let Some(task) = self.running_task(&request.task_id, context).await? {
            task.deliver(request.input_responses);
        }
        Ok(())
    }

    pub(in super::super) async fn cancel_own_task(
        &self,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if let Some(task) = self.running_task(id, context).await? {
            task.cancel();
        }
        Ok(())
    }

    /// A task that goes on here; none if it has ended. An error if it goes on elsewhere.
    async fn running_task(
        &self,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<Arc<OwnTask>>, ErrorData> {
        let caller = caller_from_request(context, &self.session);
        if let Some(task) = find_task(id, &caller) {
            return Ok(Some(task));
        }
        match find_recorded_task(self, &caller, id, context).await {
            Some(RecordedTask::Resumed(task)) => Ok(Some(task)),
            Some(RecordedTask::Ended(_)) => Ok(None),
            Some(RecordedTask::Elsewhere { why, .. }) => Err(error_from_problem(why)),
            None => Err(unknown_task_error(id)),
        }
    }
}
