//! Functions that scripts call and Rust answers.

use std::fmt;

use allocative::Allocative;
use starlark::eval::{Arguments, Evaluator};
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, starlark_value,
};

/// What is behind such a function.
pub(super) trait NativeBody: fmt::Debug + Send + Sync + 'static {
    fn call<'v>(
        &self,
        name: &str,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>>;
}

/// A function that needs nothing beside its arguments.
pub(super) type PlainNativeFunction =
    for<'v> fn(&str, &Arguments<'v, '_>, &mut Evaluator<'v, '_, '_>) -> starlark::Result<Value<'v>>;

impl NativeBody for PlainNativeFunction {
    fn call<'v>(
        &self,
        name: &str,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        self(name, args, eval)
    }
}

#[derive(Debug, ProvidesStaticType, NoSerialize, Allocative, StarlarkPagablePanic)]
pub(super) struct NativeFunction {
    /// As messages call it: `http.get`.
    name: String,
    #[allocative(skip)]
    body: Box<dyn NativeBody>,
}

starlark::starlark_simple_value!(NativeFunction);

impl NativeFunction {
    pub(super) fn new(name: impl Into<String>, body: impl NativeBody) -> Self {
        Self { name: name.into(), body: Box::new(body) }
    }
}

impl fmt::Display for NativeFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<function {}>", self.name)
    }
}

#[starlark_value(type = "function")]
impl<'v> StarlarkValue<'v> for NativeFunction {
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        self.body.call(&self.name, args, eval)
    }
}
