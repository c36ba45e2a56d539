use std::sync::Arc;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{Body, Expose, Source, SourceKind};
use moonlark_core::{Caller, Catalog, Gateway, Tool, Value};
use serde_json::{Value as Json, json};
#[tokio::main]
async fn main() {
    let mut tools: Vec<Arc<Tool>> = Vec::new();
    let mut dirs: Vec<_> = std::fs::read_dir("/work/shared/data/catalogs").unwrap().map(|d| d.unwrap().path()).collect();
    dirs.sort();
    let mut walk = Vec::new();
    for path in dirs {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let file: Json = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let source = Arc::new(Source { kind: SourceKind::Upstream, name: name.clone() });
        for t in file["tools"].as_array().into_iter().flatten() {
            let (input, _) = Schema::foreign(t["inputSchema"].as_object().cloned().unwrap_or_default());
            let own = t["name"].as_str().unwrap();
            let mut tool = Tool::new(format!("{name}.{own}"), source.clone(), input, Body::now(|_, _| Ok(Value::Null)));
            tool.description = t["description"].as_str().unwrap_or_default().to_owned();
            tool.output = t["outputSchema"].as_object().map(|o| Schema::described(o.clone()));
            tool.expose = Expose::Code;
            if let Ok(Value::Object(d)) = Value::from_json(t.clone()) { tool.definition = Some(Arc::new(d)); }
            tools.push(Arc::new(tool));
            walk.push((name.clone(), own.to_owned(), t["description"].as_str().unwrap_or_default().split_whitespace().take(12).collect::<Vec<_>>().join(" ")));
        }
    }
    tools.extend(moonlark_discovery::tools().unwrap());
    let g = Gateway::new(Catalog::new(Arc::default(), tools, &[], Vec::new()), 10);
    let ask = async |tool: &str, args: Json| { let call = g.open(Caller::new("x"), None).unwrap(); match g.call(&call, tool, Value::from_json(args).unwrap()).await { Ok(v) => v.as_str().unwrap().to_owned(), Err(p) => p.to_string() } };
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args[0] == "walk" {
        let mut sizes = vec![]; let mut docs = vec![]; let mut found = 0; let mut first=0; let mut n = 0;
        for (s, own, q) in &walk {
            if q.is_empty() { continue }
            let a = ask("search_docs", json!({"query": q})).await;
            let d = ask("get_function_docs", json!({"names": [format!("{s}.{own}")]})).await;
            let p = d.lines().find_map(|l| l.strip_prefix("function ")).unwrap_or_default().split('(').next().unwrap().to_owned();
            n += 1; if a.contains(&format!("{p}(")) { found += 1 } if a.starts_with(&format!("{p}(")) { first += 1 } 
            sizes.push((a.len(), q.clone())); docs.push((d.len(), p));
        }
        sizes.sort(); docs.sort();
        println!("n {n} found {found} first {first} search p50 {} p90 {} max {:?} docs p50 {} p90 {} max {:?}", sizes[n/2].0, sizes[n*9/10].0, sizes[n-1], docs[n/2].0, docs[n*9/10].0, docs[n-1]);
    } else { println!("{}", ask(&args[0], serde_json::from_str(&args[1]).unwrap()).await); }
}
