//! Who may call this project over HTTP: where tokens are kept, and what the
//! configuration says about callers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonlark_gateway::Gateway;
use moonlark_server::RequestAuthenticator;

use moonlark_config::config_file::LoadedConfig;
use moonlark_state::state_folder::state_folder_path;

/// Where handed out tokens are kept.
pub(crate) fn token_file(root: &Path) -> PathBuf {
    state_folder_path(root).join("tokens.json")
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
