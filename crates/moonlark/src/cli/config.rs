//! `moonlark config check` and `config show`

use clap::Subcommand;
use moonlark_core::Problem;
use serde_json::json;

use super::{Done, Failure, Global, here, print, print_json, say_about, shown};
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
            print(format!("{:#}", crate::config::schema()));
            return Ok(());
        }
        let (needed, env) = (ValuesNeeded::Never, |key: &str| std::env::var(key).ok());
        let loaded = config_file::load_for(needed, global.config.as_deref(), &here()?, &env);
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(problems) if global.json => {
                let problems: Vec<_> = problems.iter().map(Problem::to_json).collect();
                print_json(&json!({ "problems": problems }));
                return Err(Failure::Said);
            }
            Err(problems) => return Err(problems.into()),
        };
        let origin = match &loaded.path {
            Some(path) => shown(path.strip_prefix(here()?).unwrap_or(path)),
            None => "no configuration file; everything is default".to_owned(),
        };
        match self {
            Config::Check if global.json => {
                let to_json =
                    |all: &[Problem]| all.iter().map(Problem::to_json).collect::<Vec<_>>();
                print_json(&json!({
                    "problems": [],
                    "warnings": to_json(&loaded.warnings),
                    "unset": to_json(&loaded.unset),
                    "file": loaded.path,
                }))
            }
            Config::Check => {
                say_about(&loaded);
                print(format!("{origin}: nothing wrong"));
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
            _ => print(format!("# {origin}\n{}", config_file::show(&loaded).trim_end())),
        }
        Ok(())
    }
}
