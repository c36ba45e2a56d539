//! `moonlark tool init`, `tool test`, `tool list`

use std::path::Path;
use std::sync::Arc;

use clap::Subcommand;
use moonlark_core::tool::SourceKind;
use moonlark_core::{Place, Problem};
use serde_json::json;

use super::served::ServedCommand;
use super::servers::Servers;
use super::tool_test::Test;
use super::{
    Done, Global, caller, here, print, print_json, say, say_problem, settle, shown, template,
};
use crate::config_file;
use crate::project::Project;

#[derive(Subcommand)]
pub(crate) enum Tool {
    /// Write a new tool script from a template, and a test for it.
    Init {
        /// The tool's name; the file is named after it.
        name: String,
        /// Write a Starlark extension.
        #[arg(long)]
        starlark: bool,
    },
    /// Run one tool of a script, with a report of each step.
    Test(Test),
    /// List all tools.
    List,
}

impl Tool {
    pub(crate) async fn run(self, global: &Global) -> Done {
        match self {
            Tool::Init { name, starlark } => init(&name, starlark, global),
            Tool::Test(test) => test.run(global).await,
            Tool::List => ServedCommand::ToolList.run(Servers::default(), global).await,
        }
    }
}

fn init(name: &str, starlark: bool, global: &Global) -> Done {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err(Problem::bad_request(format!("{name:?} cannot be the name of a tool"))
            .hint("use letters, digits, - and _")
            .into());
    }
    let loaded =
        config_file::load(global.config.as_deref(), &here()?, &|key| std::env::var(key).ok())?;
    let (dir, files) = if starlark {
        let test = (format!("{name}_test.star"), template::extension_test(name));
        let files = vec![(format!("{name}.star"), template::extension(name)), test];
        (&loaded.config.extensions.dir, files)
    } else {
        let test = (format!("{name}_test.luau"), template::tool_test(name));
        let files = vec![(format!("{name}.lua"), template::tool(name)), test];
        (&loaded.config.tools.dir, files)
    };
    let dir = loaded.root.join(dir);
    let label = |file: &str| {
        let path = dir.join(file);
        shown(path.strip_prefix(&loaded.root).unwrap_or(&path))
    };
    let first = label(&files[0].0);
    std::fs::create_dir_all(&dir).map_err(|error| cannot_write(&first, &error))?;
    // All or nothing.
    if let Some((file, _)) = files.iter().find(|(file, _)| dir.join(file).exists()) {
        return Err(is_there(&label(file)).into());
    }
    for (file, text) in &files {
        write_new(&dir.join(file), text).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => is_there(&label(file)),
            _ => cannot_write(&label(file), &error),
        })?;
        print(format!("Created {}", label(file)));
    }
    if !global.quiet {
        say(format!("Try it: moonlark tool test {first} --param name=World"));
        say("Test it: moonlark test");
    }
    Ok(())
}

fn is_there(label: &str) -> Problem {
    Problem::bad_request(format!("{label} is there already"))
        .hint("choose another name, or remove the file first")
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    std::fs::File::create_new(path)?.write_all(text.as_bytes())
}

fn cannot_write(label: &str, error: &std::io::Error) -> Problem {
    Problem::unavailable(format!("cannot write it: {error}")).at(Place::file(label))
}

pub(crate) async fn list_in(project: &Arc<Project>, global: &Global) -> Done {
    settle(project).await;
    let catalog = project.gateway.catalog_for(&caller());
    if global.json {
        let tools: Vec<_> = catalog
            .listed()
            .map(|tool| {
                json!({
                    "name": tool.name,
                    "title": tool.title,
                    "description": tool.description,
                    "builtin": tool.source.kind == SourceKind::Builtin,
                    "source": tool.source.name,
                    "version": tool.version,
                    "parameters": **tool.input.json(),
                })
            })
            .collect();
        let problems: Vec<_> = catalog.problems().iter().map(Problem::to_json).collect();
        print_json(&json!({ "tools": tools, "problems": problems }));
        return Ok(());
    }
    let group = |kind: SourceKind, width: usize| {
        let tools: Vec<_> = catalog.listed().filter(|tool| tool.source.kind == kind).collect();
        let width = tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0).max(width);
        let lines: Vec<String> = tools
            .iter()
            .map(|tool| {
                let first = tool.description.lines().next().unwrap_or_default();
                let first = moonlark_core::value::shorten(first);
                let title = tool.title.as_ref().map(|title| format!("{title}: "));
                let title = title.unwrap_or_default();
                format!("  {:<width$} {title}{first}", tool.name).trim_end().to_owned()
            })
            .collect();
        lines
    };
    let print_group = |title: &str, lines: &[String]| {
        print(title);
        lines.iter().for_each(print);
    };
    print_group("Built-in tools:", &group(SourceKind::Builtin, 16));
    let scripts = group(SourceKind::Script, 20);
    let extensions = group(SourceKind::Extension, 20);
    let upstreams = group(SourceKind::Upstream, 20);
    let groups = [
        ("Lua tools:", &scripts),
        ("Starlark extensions:", &extensions),
        ("Tools of upstream servers:", &upstreams),
    ];
    for (title, lines) in groups.into_iter().filter(|(_, lines)| !lines.is_empty()) {
        print("");
        print_group(title, lines);
    }
    if scripts.is_empty() && extensions.is_empty() && upstreams.is_empty() {
        print("");
        print("Lua tools: none yet; `moonlark tool init hello` writes one");
    }
    for problem in catalog.problems() {
        say("");
        say_problem(problem);
    }
    Ok(())
}
