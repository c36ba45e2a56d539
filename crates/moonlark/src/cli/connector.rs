//! `moonlark connector init`, `connector test`, `connector list`

mod test;

use clap::Subcommand;
use moonlark_core::Problem;
use serde_json::json;

use super::problem_lines::error_lines;
use super::{
    CommandResult, GlobalArgs, StyledText, eprint_line, load_config, open_project, path_label,
    print_json, print_line, template,
};

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
    template::check_script_name(name, "connector")?;
    let loaded = load_config(global)?;
    let dir = loaded.root.join(&loaded.config.connectors.dir);
    let path = dir.join(format!("{name}.luau"));
    let label = path_label(&path, &loaded.root);
    std::fs::create_dir_all(&dir)
        .and_then(|()| template::write_new_file(&path, &template::connector_script(name)))
        .map_err(|error| template::new_file_problem(&label, &error))?;
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
