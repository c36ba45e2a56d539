//! The principal: who makes a request, found out before anything is done with it.
//!
//! Whoever checks tokens puts a [`Principal`] into the request; REST and MCP take it
//! from there. Nothing here checks anything: a request without one is nobody's.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::Extensions;
use http::request::Parts;
use moonlark_gateway::Caller;
use moonlark_gateway::call::LOCAL_CALLER;

/// Who it is, as far as that is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Principal {
    /// The name that rules know the caller by; none if it has not shown who it is.
    name: Option<Arc<str>>,
    /// Whether it may see and decide what is others'.
    operator: bool,
}

tokio::task_local! {
    /// The SDK asks some things of us without saying for which request.
    static CURRENT_PRINCIPAL: Principal;
}

impl Principal {
    pub fn with_name(name: impl Into<Arc<str>>) -> Self {
        Self { name: Some(name.into()), operator: false }
    }

    /// The same, as somebody who may see and decide what is others'.
    #[must_use]
    pub fn with_operator(self, operator: bool) -> Self {
        Self { operator, ..self }
    }

    /// Whoever has started this process.
    pub(crate) fn local() -> Self {
        Self::with_name(LOCAL_CALLER)
    }

    pub(crate) fn from_extensions(extensions: &Extensions) -> Self {
        extensions.get::<Principal>().cloned().unwrap_or_default()
    }

    /// Whose request this task serves, if that is known.
    pub(crate) fn current() -> Option<Self> {
        CURRENT_PRINCIPAL.try_with(Principal::clone).ok()
    }

    /// Serve a request of this caller.
    pub(crate) async fn scope_current<F: Future>(self, serving: F) -> F::Output {
        CURRENT_PRINCIPAL.scope(self, serving).await
    }

    pub(crate) fn to_caller(&self, surface: &'static str) -> Caller {
        Caller { name: self.name.clone(), ..Caller::new(surface) }
    }

    pub(crate) fn is_operator(&self) -> bool {
        self.operator
    }

    /// Its name, if it has shown who it is.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl<S: Sync> FromRequestParts<S> for Principal {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Principal::from_extensions(&parts.extensions))
    }
}
