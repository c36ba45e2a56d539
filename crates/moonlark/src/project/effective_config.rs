//! The configuration in effect: the file's, with the sources that the command line
//! names beside it.

use std::path::Path;

use moonlark_core::Problem;
use moonlark_core::value::shorten;

use super::More;
use crate::config::{Api, ApiAuth, Hidden};
use crate::config_file::{self, Loaded, RejectedConfig};

pub(super) fn read_config(
    explicit: Option<&Path>,
    cwd: &Path,
    more: &More,
) -> Result<Loaded, RejectedConfig> {
    let env = |name: &str| std::env::var(name).ok();
    let mut loaded = config_file::load_for(more.values_needed, explicit, cwd, &env)?;
    loaded.config.mcp_servers.extend(more.servers.clone());
    for (name, spec) in &more.specs {
        let api = Api { spec: spec.clone(), ..Api::default() };
        if let Some((_, fault)) = api.faults(name).into_iter().next() {
            let message = format!("the API {}: {fault}", shorten(name));
            return Err(Problem::bad_config(message).into());
        }
        loaded.config.apis.insert(name.clone(), api);
    }
    for (name, variable) in &more.logins {
        match loaded.config.apis.get_mut(name) {
            Some(api) => {
                api.auth = ApiAuth::None;
                api.auth_env = Some(variable.clone());
            }
            None => {
                let message = format!("--auth names the API {name}, which is not there");
                let hint =
                    format!("name its document too: --api {name}=SPEC, or spec in [apis.{name}]");
                return Err(Problem::bad_config(message).hint(hint).into());
            }
        }
    }
    for api in loaded.config.apis.values_mut() {
        let variable = api.auth_env.as_deref();
        let value =
            variable.and_then(|it| env(it).or_else(|| Some(loaded.secrets.get(it)?.into())));
        api.auth_value = value.map(Hidden);
    }
    Ok(loaded)
}
