//! What runs behind a tool, sealed: only the gateway can open it.
//!
//! A body takes the call that it is part of, and what a call is, only the gateway knows.
//! So a tool carries its body as a value of a type that the gateway has and nobody else
//! can use: there is no way to run a tool but through the gateway.

use std::any::Any;
use std::sync::Arc;

use crate::problem::Result;
use crate::value::Value;

/// The body of a tool, for whoever knows its type.
#[derive(Clone)]
pub struct SealedBody {
    body: Arc<dyn Any + Send + Sync>,
    is_instant: bool,
}

impl SealedBody {
    /// `is_instant` says that running it blocks nobody.
    pub fn new(body: impl Any + Send + Sync, is_instant: bool) -> Self {
        Self { body: Arc::new(body), is_instant }
    }

    /// Nothing: for a tool that is described and never called.
    pub fn empty() -> Self {
        Self::new((), false)
    }

    /// The body, if it is of this type.
    pub fn open<T: Any>(&self) -> Option<&T> {
        self.body.downcast_ref()
    }

    pub fn is_instant(&self) -> bool {
        self.is_instant
    }
}

/// The type of the call that functions of modules take: how they become bodies of tools.
pub trait BodyCall: Sized + 'static {
    /// For a function that computes and returns.
    fn seal_fn(body: impl Fn(&Self, Value) -> Result<Value> + Send + Sync + 'static) -> SealedBody;

    /// For a function that may wait.
    fn seal_async_fn<F>(body: impl Fn(Self, Value) -> F + Send + Sync + 'static) -> SealedBody
    where
        F: Future<Output = Result<Value>> + Send + 'static;
}
