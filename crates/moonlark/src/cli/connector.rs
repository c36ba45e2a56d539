//! `moonlark connector init`, `connector test`, `connector list`

mod test;

use clap::Subcommand;
use moonlark_core::{Problem, SourceLocation};
use serde_json::json;

use super::problem_lines::error_lines;
use super::{
    CommandResult, GlobalArgs, StyledText, display_path, eprint_line, open_project, print_json,
    print_line, template, working_dir,
};
use moonlark_config::config_file;

#[derive(Subcommand)]
pub(crate) enum ConnectorCommand {
    /// Write a new connector script from a template.
    Init {
        /// The connector's name; the file is named after it.
        name: String,
    },
    /// Run a connector script and show what it finds, without keeping it.
    Test(test::ConnectorTestArgs),
    /// List all connectors.
    List,
}

impl ConnectorCommand {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        match self {
            ConnectorCommand::Init { name } => init_connector(&name, global),
            ConnectorCommand::Test(test) => test.run(global).await,
            ConnectorCommand::List => list_connectors(global).await,
        }
    }
}

fn init_connector(name: &str, global: &GlobalArgs) -> CommandResult {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err(Problem::bad_request(format!("{name:?} cannot be the name of a connector"))
            .with_hint("use letters, digits, - and _")
            .into());
    }
    let loaded = config_file::load_config(global.config.as_deref(), &working_dir()?, &|key| {
        std::env::var(key).ok()
    })?;
    let dir = loaded.root.join(&loaded.config.connectors.dir);
    let path = dir.join(format!("{name}.luau"));
    let label = display_path(path.strip_prefix(&loaded.root).unwrap_or(&path));
    let written = std::fs::create_dir_all(&dir).and_then(|()| {
        use std::io::Write;
        std::fs::File::create_new(&path)?.write_all(template::connector_script(name).as_bytes())
    });
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Problem::bad_request(format!("{label} is there already"))
                .with_hint("choose another name, or remove the file first")
        }
        _ => Problem::unavailable(format!("cannot write it: {error}"))
            .at_location(SourceLocation::in_file(label.clone())),
    })?;
    print_line(format!("Created {label}"));
    if !global.quiet {
        eprint_line(format!("Try it: moonlark connector test {label}"));
        eprint_line(format!("Use it: moonlark sync {name} && moonlark search hello"));
    }
    Ok(())
}

async fn list_connectors(global: &GlobalArgs) -> CommandResult {
    let project = open_project(global).await?;
    let sources = project.knowledge.sources();
    if global.json {
        let connectors: Vec<_> = sources
            .iter()
            .map(|source| {
                json!({
                    "name": source.name,
                    "kind": source.kind(),
                    "place": source.location(),
                    "description": source.description(),
                    "problem": source.problem.as_ref().map(Problem::to_json),
                })
            })
            .collect();
        print_json(&json!({ "connectors": connectors }));
        return Ok(());
    }
    if sources.is_empty() {
        print_line("No connectors yet; `moonlark connector init hello` writes one");
        return Ok(());
    }
    let width = |of: fn(&crate::connectors::KnowledgeSource) -> usize| {
        sources.iter().map(of).max().unwrap_or_default()
    };
    let (name, kind) = (width(|it| it.name.len()), width(|it| it.kind().len()));
    for source in sources.iter() {
        let about = source.description().map(|it| format!("  {it}")).unwrap_or_default();
        let line =
            format!("{:<name$}  {:<kind$}  {}", source.name, source.kind(), source.location());
        print_line(format!("{line}{about}"));
        if let Some(problem) = &source.problem {
            error_lines(problem)
                .into_iter()
                .for_each(|line| eprint_line(StyledText::from("  ").append_text(line)));
        }
    }
    Ok(())
}
