//! `moonlark config check` and `config show`

use clap::Subcommand;
use moonlark_core::Problem;
use serde_json::{Value as Json, json};

use super::{
    Done, Failure, Global, here, print, print_json, print_text, say, say_about, say_unset, shown,
};
use crate::config_file::{self, ValuesNeeded};

#[derive(Subcommand)]
pub(crate) enum Config {
    /// Check the configuration file and report everything wrong with it.
    Check,
    /// Print the configuration in effect, secrets left out.
    Show,
    /// Print the JSON Schema of moonlark.toml.
    Schema,
}

impl Config {
    pub(crate) fn run(self, global: &Global) -> Done {
        if let Config::Schema = self {
            print_text(format!("{:#}", crate::config::schema()));
            return Ok(());
        }
        let (needed, env) = (ValuesNeeded::Never, |key: &str| std::env::var(key).ok());
        let loaded = config_file::load_for(needed, global.config.as_deref(), &here()?, &env);
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(rejected) if global.json => {
                print_json(&json!({
                    "problems": to_json(&rejected.errors),
                    "warnings": to_json(&rejected.warnings),
                    "unset": to_json(&rejected.unset),
                }));
                return Err(Failure::Said);
            }
            Err(rejected) => {
                say_unset(&rejected.unset);
                let counts =
                    super::counted_findings(rejected.errors.len(), rejected.warnings.len());
                Failure::Config(rejected).say();
                say("");
                say(counts);
                return Err(Failure::Said);
            }
        };
        let origin = match &loaded.path {
            Some(path) => shown(path.strip_prefix(here()?).unwrap_or(path)),
            None => "no configuration file; everything is default".to_owned(),
        };
        match self {
            Config::Check if global.json => print_json(&json!({
                "problems": [],
                "warnings": to_json(&loaded.warnings),
                "unset": to_json(&loaded.unset),
                "file": loaded.path,
            })),
            Config::Check => {
                say_about(&loaded);
                print(format!("{origin}: {}", super::counted_findings(0, loaded.warnings.len())));
            }
            Config::Show if global.json => {
                let text = config_file::show(&loaded);
                let value: toml::Value = toml::from_str(&text).map_err(|error| {
                    Problem::internal(format!("cannot show the configuration: {error}"))
                })?;
                print(
                    &serde_json::to_string(&value)
                        .map_err(|error| Problem::internal(error.to_string()))?,
                );
            }
            _ => {
                print(format!("# {origin}"));
                print_text(config_file::show(&loaded).trim_end());
            }
        }
        Ok(())
    }
}

fn to_json(problems: &[Problem]) -> Vec<Json> {
    problems.iter().map(Problem::to_json).collect()
}
