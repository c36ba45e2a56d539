//! How the tests of this crate call a host function: through the gateway, from
//! a tool whose scope they choose, as a script would.

use std::path::Path;
use std::sync::{Arc, Mutex};

use moonlark_core::grant::GrantSet;
use moonlark_core::limits::CallLimits;
use moonlark_core::module::ModuleFunction;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{CallScope, Source, SourceKind, Tool};
use moonlark_core::{Catalog, Problem, Result, Value};
use moonlark_gateway::tool_body::ToolBody;
use moonlark_gateway::{Caller, Gateway};
use serde_json::Value as Json;

/// A script's scope: its directory, what it is granted, default limits.
pub(crate) fn scope(dir: &Path, grants: &[&str]) -> CallScope {
    let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
    CallScope {
        grants: GrantSet::for_authored_script("tools.script.test", dir.to_owned(), grants),
        ..CallScope::default()
    }
}

/// The same with limits changed.
pub(crate) fn limited(mut scope: CallScope, change: impl FnOnce(&mut CallLimits)) -> CallScope {
    change(&mut scope.limits);
    scope
}

/// Call `name`, such as `fs.read`, from a script with this scope.
pub(crate) async fn call(scope: CallScope, name: &str, args: Json) -> Result<Value> {
    call_value(scope, name, Value::from_json(args)?).await
}

pub(crate) async fn call_value(scope: CallScope, name: &str, args: Value) -> Result<Value> {
    let wanted = name.to_owned();
    // What the function itself says; what becomes of that on the way out of the
    // script is not this crate's business.
    let own = Arc::new(Mutex::new(None));
    let slot = own.clone();
    let body = ToolBody::from_async_fn(move |call, args| {
        let (wanted, slot) = (wanted.clone(), slot.clone());
        async move {
            let function = find(call.catalog().modules(), &wanted)?;
            let result = call.gateway().call(&call, &function.tool, args).await;
            *slot.lock().unwrap() = Some(result);
            Ok(Value::Null)
        }
    });
    let source = Arc::new(Source { kind: SourceKind::Script, name: "test.luau".into() });
    let schema = Schema::compile(serde_json::Map::new())?;
    let mut script = Tool::new("script", source, schema, body);
    script.scope = Arc::new(scope);
    let modules = Arc::new(crate::host_modules());
    let gateway = Gateway::new(Catalog::new(modules, vec![Arc::new(script)], &[], vec![]), 10);
    let call = gateway.open_call(Caller::new("cli"))?;
    let outer = gateway.call(&call, "script", args).await;
    let own = own.lock().unwrap().take();
    own.unwrap_or(outer)
}

/// The terminal form of what went wrong.
pub(crate) async fn problem(scope: CallScope, name: &str, args: Json) -> String {
    call(scope, name, args).await.unwrap_err().to_string()
}

fn find(modules: &[moonlark_core::Module], name: &str) -> Result<ModuleFunction> {
    modules
        .iter()
        .flat_map(|module| &module.functions)
        .find(|function| function.tool.name == name)
        .cloned()
        .ok_or_else(|| Problem::internal(format!("no host function is named {name}")))
}
