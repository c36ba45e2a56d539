//! Who may call this project over HTTP: where tokens are kept, and what the
//! configuration says about callers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonlark_core::Gateway;
use moonlark_server::Auth;

use crate::config_file::Loaded;
use crate::state_folder::state_folder;

/// Where handed out tokens are kept.
pub(crate) fn file(root: &Path) -> PathBuf {
    state_folder(root).join("tokens.json")
}

pub(crate) fn auth(loaded: &Loaded, gateway: &Gateway) -> Arc<Auth> {
    let fetch = Arc::new(|url| Box::pin(moonlark_upstream::auth::fetch(url)) as _);
    let auth = Auth::new(gateway.clone(), file(&loaded.root), fetch);
    auth.configure(loaded.config.server.auth.settings());
    auth
}
