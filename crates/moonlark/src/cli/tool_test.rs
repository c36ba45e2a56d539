//! `moonlark tool test`: one script, step by step.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use moonlark_core::value::Object;
use moonlark_core::{Caller, Catalog, Problem, Result, Tool, Value};
use moonlark_luau::Luau;

use super::{Done, Global, Params, here, open, pretty, print, shown};
use crate::scripts::{self, Found};

#[derive(Args)]
pub(crate) struct Test {
    /// The script.
    path: PathBuf,
    #[command(flatten)]
    params: Params,
    /// Take the settings of this entry under [tools.script].
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

impl Test {
    pub(crate) async fn run(self, global: &Global) -> Done {
        // With --json only the result is printed.
        let say = |line: &str| {
            if !global.json {
                print(line);
            }
        };
        let project = open(global).await?;
        let tool = Arc::new(self.load(&project).await?);
        let label = shown(&self.path);
        say(&format!("Testing tool: {} ({label})", tool.name));
        say("  ✓ Script loaded");
        say("  ✓ tool.execute defined");
        let count = tool.input.properties().count();
        say(&format!("  ✓ {count} parameter{} declared", if count == 1 { "" } else { "s" }));

        let mut args = Object::new();
        self.params.add_to(&mut args, Some(&tool));
        say(&format!("  ✓ Calling execute({})...", outline(&args)));
        let started = Instant::now();
        let result = call(&project, &tool, args).await;
        let took = started.elapsed().as_secs_f64();
        match result {
            Ok(text) if global.json => print(&text),
            Ok(text) => {
                say(&format!("  ✓ Returned result in {took:.1}s"));
                print("\nResult:");
                print(&indented(&text));
            }
            Err(problem) => {
                say(&format!("  ✗ Failed after {took:.1}s\n"));
                return Err(problem.into());
            }
        }
        Ok(())
    }

    async fn load(&self, project: &crate::project::Project) -> Result<Tool, super::Failure> {
        let loaded = project.loaded().await;
        if let Some(name) = &self.source
            && !loaded.config.tools.script.contains_key(name)
        {
            let near = moonlark_core::nearest::nearest(
                name,
                loaded.config.tools.script.keys().map(String::as_str),
            );
            return Err(Problem::bad_request(format!(
                "there is no [tools.script.{name}] in the configuration"
            ))
            .maybe_hint(near.map(|near| format!("did you mean {near}?")))
            .into());
        }
        let path = here()?.join(&self.path);
        let found = Found::tool(path, shown(&self.path), self.source.clone());
        let text = scripts::read(&found)?;
        let script = scripts::prepare(&found, text, &loaded.config)?;
        let engine = Luau::new(&moonlark_host::all())?;
        Ok(engine.load(script, &project.gateway).await?)
    }
}

/// Call the script itself, with the project's tools at hand for `context.call`.
async fn call(project: &crate::project::Project, tool: &Arc<Tool>, args: Object) -> Result<String> {
    let catalog = project.gateway.catalog();
    let others = catalog.tools().iter().filter(|other| other.name != tool.name).cloned();
    let tools = std::iter::once(tool.clone()).chain(others).collect();
    project.gateway.publish(Catalog::new(
        catalog.modules().clone(),
        tools,
        &crate::builtin::REPLACEABLE,
        Vec::new(),
    ));
    let call = project.gateway.open(Caller::new("cli"), None)?;
    pretty(&project.gateway.call(&call, &tool.name, Value::Object(args)).await?)
}

/// `{title: "Test ticket", body: "…"}`
fn outline(args: &Object) -> String {
    let fields: Vec<String> =
        args.iter().map(|(name, value)| format!("{name}: {}", value.to_json_lossy())).collect();
    format!("{{{}}}", fields.join(", "))
}

fn indented(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}
