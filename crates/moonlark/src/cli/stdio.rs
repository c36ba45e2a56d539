//! `moonlark stdio`

use clap::Args;

use super::servers::Servers;
use super::{Done, Global, require_tools};
use crate::reload;

#[derive(Args)]
pub(crate) struct Stdio {
    /// APIs: their OpenAPI documents, files or addresses.
    #[arg(value_name = "NAME=SPEC", value_parser = super::key_value)]
    specs: Vec<(String, String)>,
    #[command(flatten)]
    servers: Servers,
}

impl Stdio {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let project = self.servers.open_with(global, self.specs).await?;
        require_tools(&project).await?;
        for problem in project.gateway.catalog().problems() {
            tracing::warn!("{problem}");
        }
        project.connect().await;
        let keeping = project.keep_learned().await;
        project.keep_journal().await;
        let runs = project.take_up_runs().await;
        let following = project.knowledge.follow(&project.gateway);
        tokio::spawn(reload::watch(project.clone()));
        let served = tokio::select! {
            served = moonlark_server::serve_stdio(project.gateway.clone()) => served,
            () = super::serve::until_asked_to_stop() => Ok(()),
        };
        drop((following, runs));
        keeping.stop().await;
        project.disconnect().await;
        Ok(served?)
    }
}
