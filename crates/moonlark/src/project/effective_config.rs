//! The configuration in effect: the file's, with the sources that the command line
//! names beside it.

use std::path::Path;

use moonlark_core::Problem;
use moonlark_core::value::shorten_text;

use super::CliSources;
use moonlark_config::config_file::{self, LoadedConfig, RejectedConfig};
use moonlark_config::{ApiAuthConfig, ApiConfig, RedactedString};

pub(super) fn read_effective_config(
    explicit: Option<&Path>,
    cwd: &Path,
    more: &CliSources,
) -> Result<LoadedConfig, RejectedConfig> {
    let env = |name: &str| std::env::var(name).ok();
    let mut loaded = config_file::load_config_with(more.values_needed, explicit, cwd, &env)?;
    loaded.config.mcp_servers.extend(more.servers.clone());
    for (name, spec) in &more.specs {
        let api = ApiConfig { spec: spec.clone(), ..ApiConfig::default() };
        if let Some((_, fault)) = api.find_faults(name).into_iter().next() {
            let message = format!("the API {}: {fault}", shorten_text(name));
            return Err(Problem::bad_config(message).into());
        }
        loaded.config.apis.insert(name.clone(), api);
    }
    for (name, variable) in &more.logins {
        match loaded.config.apis.get_mut(name) {
            Some(api) => {
                api.auth = ApiAuthConfig::None;
                api.auth_env = Some(variable.clone());
            }
            None => {
                let message = format!("--auth names the API {name}, which is not there");
                let hint =
                    format!("name its document too: --api {name}=SPEC, or spec in [apis.{name}]");
                return Err(Problem::bad_config(message).with_hint(hint).into());
            }
        }
    }
    for api in loaded.config.apis.values_mut() {
        let variable = api.auth_env.as_deref();
        let value =
            variable.and_then(|it| env(it).or_else(|| Some(loaded.secrets.get(it)?.into())));
        api.auth_value = value.map(RedactedString);
    }
    Ok(loaded)
}
