//! HTTP authentication of a project: the token file and `[server.auth]`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonlark_gateway::Gateway;
use moonlark_server::{CallerIdentification, HttpServerOptions, RequestAuthenticator};

use crate::project::Project;
use moonlark_config::ProjectConfig;
use moonlark_config::config_file::LoadedConfig;
use moonlark_state::state_folder::state_folder_path;

/// Where handed out tokens are kept.
pub(crate) fn token_file(root: &Path) -> PathBuf {
    state_folder_path(root).join("tokens.json")
}

/// How requests are served, from callers that are known in this way.
pub(crate) fn http_server_options(
    project: &Project,
    config: &ProjectConfig,
    callers: CallerIdentification,
) -> HttpServerOptions {
    HttpServerOptions {
        allowed_hosts: config.server.allowed_hosts.clone(),
        allowed_origins: config.server.allowed_origins.clone(),
        request_body: usize::try_from(config.limits.request_body.bytes()).unwrap_or(usize::MAX),
        callers,
        sessions: project.session_vault(),
    }
}

pub(crate) fn make_http_auth(
    loaded: &LoadedConfig,
    gateway: &Gateway,
) -> Arc<RequestAuthenticator> {
    let fetch = Arc::new(|url| Box::pin(moonlark_oauth::fetch_provider_document(url)) as _);
    let auth = RequestAuthenticator::new(gateway.clone(), token_file(&loaded.root), fetch);
    auth.configure(loaded.config.server.auth.to_auth_settings());
    auth
}
