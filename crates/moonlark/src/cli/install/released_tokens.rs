//! `moonlark install`: what becomes of a token that the client's file no longer shows.
//!
//! One that was made for the client is taken back. Of any other it is said that it stays
//! valid, and how to take it back.

use moonlark_clients::registration::ShownToken;
use moonlark_server::{TokenFile, TokenHash};
use serde_json::{Value as Json, json};

use super::{BackupAction, InstallArgs, InstallOutcome};
use crate::cli::{
    CommandError, CommandResult, GlobalArgs, find_config_path, load_config, print_line, token,
    working_dir,
};
use crate::http_auth;
use moonlark_state::user_text_file::UserTextFile;

/// A token that neither the client's file nor the copy beside it will have.
pub(super) struct ReleasedToken {
    /// Where it was shown.
    url: String,
    holder: TokenHolder,
    file: TokenFile,
}

enum TokenHolder {
    /// The client, for which `install --http` made it under this name.
    Client(String),
    /// Somebody for whom it was made by hand.
    Caller(String),
    /// The configuration has it.
    Configured(String),
    /// It is none of this project.
    Unknown,
}

impl ReleasedToken {
    pub(super) fn find_all(
        install: &InstallArgs,
        file: &UserTextFile,
        outcome: &InstallOutcome,
        global: &GlobalArgs,
    ) -> Result<Vec<ReleasedToken>, CommandError> {
        let entry = install.registration_in(file);
        let mut gone = entry.shown_tokens(file.text());
        let copy = file.read_backup()?;
        let copy = match outcome.copy {
            Some(BackupAction::Drop) => None,
            Some(BackupAction::Keep) => copy.text.as_deref().or(Some(file.text())),
            None => copy.text.as_deref(),
        };
        for text in [outcome.text.as_deref(), copy].into_iter().flatten() {
            let kept = entry.shown_tokens(text);
            gone.retain(|it| kept.iter().all(|kept| kept.token != it.token));
        }
        gone.iter().map(|shown| ReleasedToken::find_holder(install, shown, global)).collect()
    }

    fn find_holder(
        install: &InstallArgs,
        shown: &ShownToken,
        global: &GlobalArgs,
    ) -> Result<ReleasedToken, CommandError> {
        let cwd = working_dir()?;
        let config = find_config_path(global, &cwd);
        let root = config.as_deref().and_then(|path| path.parent()).unwrap_or(&cwd);
        let file = TokenFile::new(http_auth::token_file(root));
        let hash = TokenHash::from_token(&shown.token);
        let known = file.list_tokens()?.into_iter().find(|it| it.hash == Some(hash));
        // A configuration that is broken is no reason to leave the entry where it is.
        let configured = || {
            let tokens = load_config(global).ok()?.config.server.auth.tokens;
            let mut tokens = tokens.into_iter();
            tokens.find(|(_, token)| TokenHash::from_token(&token.0) == hash).map(|(name, _)| name)
        };
        let holder = match known.map(|it| it.name) {
            Some(name) if install.is_made_token_name(&name) => TokenHolder::Client(name),
            Some(name) => TokenHolder::Caller(name),
            None => configured().map_or(TokenHolder::Unknown, TokenHolder::Configured),
        };
        Ok(ReleasedToken { url: shown.url.clone(), holder, file })
    }

    /// Take it back, if it was made for the client.
    pub(super) fn take_back(&self) -> CommandResult {
        let TokenHolder::Client(name) = &self.holder else { return Ok(()) };
        if self.file.remove_token(name)? == 0 {
            token::eprint_no_token_left(&self.file);
        }
        Ok(())
    }

    pub(super) fn print_report(&self, dry_run: bool) {
        let url = &self.url;
        print_line(&match &self.holder {
            TokenHolder::Client(name) if dry_run => {
                format!("Would be taken back: the token of {name}")
            }
            TokenHolder::Client(name) => {
                format!("Took the token of {name} back: it is no longer valid")
            }
            TokenHolder::Caller(name) => format!(
                "Its token, of {name}, was made with `moonlark token add` and stays valid: \
                 `moonlark token remove {name}` takes it back"
            ),
            TokenHolder::Configured(name) => format!(
                "Its token, of {name}, is in [server.auth.tokens] and stays valid until you \
                 remove it there"
            ),
            TokenHolder::Unknown => format!(
                "Its token for {url} is none of this project: where it is still valid, \
                 `moonlark token list` in the project that serves there names it, and \
                 `moonlark token remove NAME` takes it back"
            ),
        });
    }

    pub(super) fn to_json(&self) -> Json {
        let (name, did) = match &self.holder {
            TokenHolder::Client(name) => (Some(name), "removed"),
            TokenHolder::Caller(name) | TokenHolder::Configured(name) => (Some(name), "kept"),
            TokenHolder::Unknown => (None, "kept"),
        };
        json!({ "name": name, "url": self.url, "did": did })
    }
}

impl InstallArgs {
    /// Whether `--http` makes tokens of that name for the client.
    fn is_made_token_name(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix(&self.client.cli_name()) else { return false };
        let number = rest.strip_prefix('-').map(str::parse::<u32>);
        rest.is_empty() || matches!(number, Some(Ok(_)))
    }
}
