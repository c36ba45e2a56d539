//! `moonlark stdio`

use std::sync::Arc;

use super::{Done, Global, open, require_tools};
use crate::reload;

pub(crate) async fn run(global: &Global) -> Done {
    let project = Arc::new(open(global).await?);
    require_tools(&project).await?;
    for problem in project.gateway.catalog().problems() {
        tracing::warn!("{problem}");
    }
    tokio::spawn(reload::watch(project.clone()));
    tokio::select! {
        served = moonlark_server::serve_stdio(project.gateway.clone()) => Ok(served?),
        () = super::serve::until_asked_to_stop() => Ok(()),
    }
}
