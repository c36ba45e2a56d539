//! What happens during a call, as notifications of its request.

#![expect(
    deprecated,
    reason = "old clients still get log messages; the SDK marks them for removal"
)]

use moonlark_gateway::CallEvent;
use moonlark_gateway::call::LogLevel;
use rmcp::model::{
    LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken,
};
use rmcp::{Peer, RoleServer};
use serde_json::json;

/// What a request wants to be told.
pub(crate) struct RequestedNotifications {
    pub(crate) progress: Option<ProgressToken>,
    /// The least severe message.
    pub(crate) level: Option<LoggingLevel>,
}

impl RequestedNotifications {
    pub(crate) fn is_empty(&self) -> bool {
        self.progress.is_none() && self.level.is_none()
    }
}

pub(crate) async fn notify_event(
    peer: &Peer<RoleServer>,
    event: CallEvent,
    wants: &RequestedNotifications,
) {
    let message = match event {
        CallEvent::Progress { done, total, message } => {
            let Some(token) = &wants.progress else { return };
            let mut progress = ProgressNotificationParam::new(token.clone(), done);
            progress.total = total;
            progress.message = message;
            let _ = peer.notify_progress(progress).await;
            return;
        }
        // Its progress has been told.
        CallEvent::Step(_) => return,
        CallEvent::Relayed { level, logger, data } => {
            let level = serde_json::from_value(level.into()).unwrap_or(LoggingLevel::Info);
            let mut message = LoggingMessageNotificationParam::new(level, data.to_json_lossy());
            message.logger = logger;
            message
        }
        CallEvent::Log { level, message, fields } => {
            let level = match level {
                LogLevel::Debug => LoggingLevel::Debug,
                LogLevel::Info => LoggingLevel::Info,
                LogLevel::Warn => LoggingLevel::Warning,
                LogLevel::Error => LoggingLevel::Error,
            };
            let data = match fields {
                Some(fields) => json!({"message": message, "fields": fields.to_json_lossy()}),
                None => message.into(),
            };
            LoggingMessageNotificationParam::new(level, data)
        }
    };
    if wants.level.is_some_and(|wanted| message.level as u8 >= wanted as u8) {
        let _ = peer.notify_logging_message(message).await;
    }
}
