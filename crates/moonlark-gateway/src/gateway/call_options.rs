//! Options of a call from outside.

use std::sync::Arc;

use crate::call::{CallEventSink, Caller};
use crate::call_client::CallClient;

/// Who calls, whether they can be asked something, and who watches.
pub struct CallOptions {
    pub(crate) caller: Caller,
    pub(crate) client: Option<Arc<dyn CallClient>>,
    pub(crate) events: Option<CallEventSink>,
}

impl From<Caller> for CallOptions {
    fn from(caller: Caller) -> Self {
        Self { caller, client: None, events: None }
    }
}

impl CallOptions {
    /// For a surface that can ask its caller.
    #[must_use]
    pub fn with_client(mut self, client: Option<Arc<dyn CallClient>>) -> Self {
        self.client = client;
        self
    }

    /// For a surface that shows what happens during the call.
    #[must_use]
    pub fn with_events(mut self, events: Option<CallEventSink>) -> Self {
        self.events = events;
        self
    }
}
