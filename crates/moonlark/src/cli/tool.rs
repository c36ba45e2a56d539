//! `moonlark tool init`, `tool test`, `tool list`

use std::path::Path;
use std::sync::Arc;

use clap::Subcommand;
use moonlark_core::tool::SourceKind;
use moonlark_core::{Problem, SourceLocation};
use serde_json::json;

use super::served_command::ServedCommand;
use super::source_args::SourceArgs;
use super::tool_test::ToolTestArgs;
use super::{
    CommandResult, GlobalArgs, cli_caller, display_path, eprint_line, eprint_problem, path_from,
    print_json, print_line, template, wait_for_sources, working_dir,
};
use crate::project::Project;
use moonlark_config::config_file;

#[derive(Subcommand)]
pub(crate) enum ToolCommand {
    /// Write a new tool script from a template, and a test for it.
    Init {
        /// The tool's name; the file is named after it.
        name: String,
        /// Write a Starlark extension.
        #[arg(long)]
        starlark: bool,
    },
    /// Run one tool of a script, with a report of each step.
    Test(ToolTestArgs),
    /// List all tools.
    List,
}

impl ToolCommand {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        match self {
            ToolCommand::Init { name, starlark } => init_tool(&name, starlark, global),
            ToolCommand::Test(test) => test.run(global).await,
            ToolCommand::List => ServedCommand::ToolList.run(SourceArgs::default(), global).await,
        }
    }
}

fn init_tool(name: &str, starlark: bool, global: &GlobalArgs) -> CommandResult {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err(Problem::bad_request(format!("{name:?} cannot be the name of a tool"))
            .with_hint("use letters, digits, - and _")
            .into());
    }
    let here = working_dir()?;
    let loaded =
        config_file::load_config(global.config.as_deref(), &here, &|key| std::env::var(key).ok())?;
    let (dir, files) = if starlark {
        let test = (format!("{name}_test.star"), template::extension_test_script(name));
        let files = vec![(format!("{name}.star"), template::extension_script(name)), test];
        (&loaded.config.extensions.dir, files)
    } else {
        let test = (format!("{name}_test.luau"), template::tool_test_script(name));
        let files = vec![(format!("{name}.lua"), template::tool_script(name)), test];
        (&loaded.config.tools.dir, files)
    };
    let dir = loaded.root.join(dir);
    // As the next command in this folder takes it.
    let label = |file: &str| display_path(&path_from(&here, &dir.join(file)));
    let (first, test) = (label(&files[0].0), label(&files[1].0));
    std::fs::create_dir_all(&dir).map_err(|error| cannot_write_problem(&first, &error))?;
    // All or nothing.
    if let Some((file, _)) = files.iter().find(|(file, _)| dir.join(file).exists()) {
        return Err(already_exists_problem(&label(file)).into());
    }
    for (file, text) in &files {
        write_new_file(&dir.join(file), text).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => already_exists_problem(&label(file)),
            _ => cannot_write_problem(&label(file), &error),
        })?;
        print_line(format!("Created {}", label(file)));
    }
    if !global.quiet {
        eprint_line(format!("Try it: moonlark tool test {first} --param name=World"));
        // It looks for tests in the working directory and below.
        let is_below = dir.starts_with(&here);
        let test = if is_below { String::new() } else { format!(" {test}") };
        eprint_line(format!("Test it: moonlark test{test}"));
    }
    Ok(())
}

fn already_exists_problem(label: &str) -> Problem {
    Problem::bad_request(format!("{label} is there already"))
        .with_hint("choose another name, or remove the file first")
}

fn write_new_file(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    std::fs::File::create_new(path)?.write_all(text.as_bytes())
}

fn cannot_write_problem(label: &str, error: &std::io::Error) -> Problem {
    Problem::unavailable(format!("cannot write it: {error}"))
        .at_location(SourceLocation::in_file(label))
}

pub(crate) async fn list_tools(project: &Arc<Project>, global: &GlobalArgs) -> CommandResult {
    wait_for_sources(project).await;
    let catalog = project.gateway.catalog_for(&cli_caller());
    if global.json {
        let tools: Vec<_> = catalog
            .tools_for_agents()
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
        let tools: Vec<_> =
            catalog.tools_for_agents().filter(|tool| tool.source.kind == kind).collect();
        let width = tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0).max(width);
        let lines: Vec<String> = tools
            .iter()
            .map(|tool| {
                let first = tool.description.lines().next().unwrap_or_default();
                let first = moonlark_core::value::shorten_text(first);
                let title = tool.title.as_ref().map(|title| format!("{title}: "));
                let title = title.unwrap_or_default();
                format!("  {:<width$} {title}{first}", tool.name).trim_end().to_owned()
            })
            .collect();
        lines
    };
    let print_group = |title: &str, lines: &[String]| {
        print_line(title);
        lines.iter().for_each(print_line);
    };
    print_group("Built-in tools:", &group(SourceKind::Builtin, 16));
    let scripts = group(SourceKind::Script, 20);
    let extensions = group(SourceKind::Extension, 20);
    let upstreams = group(SourceKind::Upstream, 20);
    let apis = group(SourceKind::Api, 20);
    let groups = [
        ("Lua tools:", &scripts),
        ("Starlark extensions:", &extensions),
        ("Tools of upstream servers:", &upstreams),
        ("Tools of APIs:", &apis),
    ];
    for (title, lines) in groups.into_iter().filter(|(_, lines)| !lines.is_empty()) {
        print_line("");
        print_group(title, lines);
    }
    if groups.iter().all(|(_, lines)| lines.is_empty()) {
        print_line("");
        print_line("Lua tools: none yet; `moonlark tool init hello` writes one");
    }
    for problem in catalog.problems() {
        eprint_line("");
        eprint_problem(problem);
    }
    Ok(())
}
