//! `moonlark connector init`, `connector test`, `connector list`

mod test;

use clap::Subcommand;
use moonlark_core::{Place, Problem};
use serde_json::json;

use super::problem_lines::error_lines;
use super::{Done, Global, StyledText, here, open, print, print_json, say, shown, template};
use crate::config_file;

#[derive(Subcommand)]
pub(crate) enum Connector {
    /// Write a new connector script from a template.
    Init {
        /// The connector's name; the file is named after it.
        name: String,
    },
    /// Run a connector script and show what it finds, without keeping it.
    Test(test::Test),
    /// List all connectors.
    List,
}

impl Connector {
    pub(crate) async fn run(self, global: &Global) -> Done {
        match self {
            Connector::Init { name } => init(&name, global),
            Connector::Test(test) => test.run(global).await,
            Connector::List => list(global).await,
        }
    }
}

fn init(name: &str, global: &Global) -> Done {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err(Problem::bad_request(format!("{name:?} cannot be the name of a connector"))
            .hint("use letters, digits, - and _")
            .into());
    }
    let loaded =
        config_file::load(global.config.as_deref(), &here()?, &|key| std::env::var(key).ok())?;
    let dir = loaded.root.join(&loaded.config.connectors.dir);
    let path = dir.join(format!("{name}.luau"));
    let label = shown(path.strip_prefix(&loaded.root).unwrap_or(&path));
    let written = std::fs::create_dir_all(&dir).and_then(|()| {
        use std::io::Write;
        std::fs::File::create_new(&path)?.write_all(template::connector(name).as_bytes())
    });
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Problem::bad_request(format!("{label} is there already"))
                .hint("choose another name, or remove the file first")
        }
        _ => {
            Problem::unavailable(format!("cannot write it: {error}")).at(Place::file(label.clone()))
        }
    })?;
    print(format!("Created {label}"));
    if !global.quiet {
        say(format!("Try it: moonlark connector test {label}"));
        say(format!("Use it: moonlark sync {name} && moonlark search hello"));
    }
    Ok(())
}

async fn list(global: &Global) -> Done {
    let project = open(global).await?;
    let sources = project.knowledge.sources();
    if global.json {
        let connectors: Vec<_> = sources
            .iter()
            .map(|source| {
                json!({
                    "name": source.name,
                    "kind": source.kind(),
                    "place": source.place(),
                    "description": source.description(),
                    "problem": source.problem.as_ref().map(Problem::to_json),
                })
            })
            .collect();
        print_json(&json!({ "connectors": connectors }));
        return Ok(());
    }
    if sources.is_empty() {
        print("No connectors yet; `moonlark connector init hello` writes one");
        return Ok(());
    }
    let width = |of: fn(&crate::connectors::Source) -> usize| {
        sources.iter().map(of).max().unwrap_or_default()
    };
    let (name, kind) = (width(|it| it.name.len()), width(|it| it.kind().len()));
    for source in sources.iter() {
        let about = source.description().map(|it| format!("  {it}")).unwrap_or_default();
        let line = format!("{:<name$}  {:<kind$}  {}", source.name, source.kind(), source.place());
        print(format!("{line}{about}"));
        if let Some(problem) = &source.problem {
            error_lines(problem)
                .into_iter()
                .for_each(|line| say(StyledText::from("  ").then(line)));
        }
    }
    Ok(())
}
