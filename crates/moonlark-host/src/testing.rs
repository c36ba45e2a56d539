//! How the tests of this crate call a host function: through the gateway, from
//! a tool whose scope they choose, as a script would.

use std::path::Path;
use std::sync::{Arc, Mutex};

use moonlark_core::gateway::Started;
use moonlark_core::grant::Grants;
use moonlark_core::limits::Limits;
use moonlark_core::module::Function;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{Body, Scope, Source, SourceKind, Tool};
use moonlark_core::{Caller, Catalog, Gateway, Problem, Result, Value};
use serde_json::Value as Json;

/// A script's scope: its directory, what it is granted, default limits.
pub(crate) fn scope(dir: &Path, grants: &[&str]) -> Scope {
    let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
    Scope {
        grants: Grants::authored("tools.script.test", dir.to_owned(), grants),
        ..Scope::default()
    }
}

/// The same with limits changed.
pub(crate) fn limited(mut scope: Scope, change: impl FnOnce(&mut Limits)) -> Scope {
    change(&mut scope.limits);
    scope
}

/// Call `name`, such as `fs.read`, from a script with this scope.
pub(crate) async fn call(scope: Scope, name: &str, args: Json) -> Result<Value> {
    call_value(scope, name, Value::from_json(args)?).await
}

pub(crate) async fn call_value(scope: Scope, name: &str, args: Value) -> Result<Value> {
    let wanted = name.to_owned();
    // What the function itself says; what becomes of that on the way out of the
    // script is not this crate's business.
    let own = Arc::new(Mutex::new(None));
    let slot = own.clone();
    let body = Body::later(move |call, args| {
        let (wanted, slot) = (wanted.clone(), slot.clone());
        async move {
            let function = find(call.catalog().modules(), &wanted)?;
            let result = match call.gateway().start(&call, &function.tool, args) {
                Started::Done(result) => result,
                Started::Running(future) => future.await,
            };
            *slot.lock().unwrap() = Some(result);
            Ok(Value::Null)
        }
    });
    let source = Arc::new(Source { kind: SourceKind::Script, name: "test.luau".into() });
    let schema = Schema::compile(serde_json::Map::new())?;
    let mut script = Tool::new("script", source, schema, body);
    script.scope = Arc::new(scope);
    let modules = Arc::new(crate::all());
    let gateway = Gateway::new(Catalog::new(modules, vec![Arc::new(script)], &[], vec![]), 10);
    let call = gateway.open(Caller::new("cli"), None)?;
    let outer = gateway.call(&call, "script", args).await;
    let own = own.lock().unwrap().take();
    own.unwrap_or(outer)
}

/// The terminal form of what went wrong.
pub(crate) async fn problem(scope: Scope, name: &str, args: Json) -> String {
    call(scope, name, args).await.unwrap_err().to_string()
}

fn find(modules: &[moonlark_core::Module], name: &str) -> Result<Function> {
    modules
        .iter()
        .flat_map(|module| &module.functions)
        .find(|function| function.tool.name == name)
        .cloned()
        .ok_or_else(|| Problem::internal(format!("no host function is named {name}")))
}
