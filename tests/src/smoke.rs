use std::sync::Arc;
use moonlark_core::grant::Grants;
use moonlark_core::limits::Limits;
use moonlark_core::tool::Scope;
use moonlark_core::{Caller, Catalog, Gateway, Value};
use moonlark_luau::{Luau, Script};

async fn run(text: &str, args: &str) -> String {
    let modules = Arc::new(moonlark_host::all());
    let engine = Luau::new(&modules).unwrap();
    let gateway = Gateway::new(Catalog::new(modules.clone(), vec![], &[], vec![]), 100);
    let limits = Limits { timeout: std::time::Duration::from_millis(500), memory: 16 << 20, ..Default::default() };
    let scope = |grants| Arc::new(Scope { grants, limits: limits.clone(), ..Scope::default() });
    let script = Script {
        file: "tools/t.lua".into(), text: text.into(), configured: None,
        scope: scope(Grants::authored("tools.script.t", ".".into(), vec![])),
        loading: scope(Grants::loading("tools.script.t", ".".into())),
    };
    let tool = match engine.load(script, &gateway).await { Ok(t) => t, Err(p) => return p.to_string() };
    gateway.publish(Catalog::new(modules, vec![Arc::new(tool)], &[], vec![]));
    let mut out = String::new();
    for _ in 0..2 {
        let call = gateway.open(Caller::new("cli"), None).unwrap();
        out = match gateway.call(&call, "t", Value::parse_json(args.as_bytes()).unwrap()).await {
            Ok(v) => v.encode_json("r").unwrap_or_else(|p| p.to_string()),
            Err(p) => p.to_string(),
        };
    }
    out
}

fn tool(body: &str) -> String {
    format!("tool = {{ name = 't', description = 'x', parameters = {{ {{ name = 'm', type = 'string' }} }} }}\nfunction tool.execute(params, context)\n{body}\nend")
}

#[tokio::test]
async fn smoke() {
    for body in [
        "local ok, e = pcall(string.rep, 'x', 1e9) return {e, type(e)}",
        "local t = {} local e for i = 1, 100 do local ok, err = pcall(function() t[#t+1] = string.rep('x', 1000000 + i) end) if not ok then return {err, #t} end end return #t",
    ] {
        let started = std::time::Instant::now();
        println!("{body}\n   => {} [{:?}]", run(&tool(body), r#"{"m":"hé"}"#).await, started.elapsed());
    }
    println!("{}", run("tool = {", "{}").await);
    println!("{}", run("local x = 5 & 3", "{}").await);
    println!("{}", run("while true do end", "{}").await);
    println!("{}", run("local a = 1\nlocal b = a.b.c", "{}").await);
}
