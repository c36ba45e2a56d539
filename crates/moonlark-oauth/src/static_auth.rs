//! Static authentication of upstreams: none, or a token from the configuration or a file.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use moonlark_core::problem::SourceLocation;
use moonlark_core::secret::{SecretText, Secrets};
use moonlark_core::{Problem, Result};
use moonlark_http::RequestAuthorizer;
use parking_lot::Mutex;

pub(super) struct StaticAuthorizer {
    pub(super) upstream: String,
    pub(super) credential: StaticCredential,
}

pub(super) enum StaticCredential {
    /// Nothing is configured, so nothing is sent.
    Nothing,
    /// A token from the configuration.
    Token(SecretText),
    /// A token in a file, which somebody else renews.
    File(TokenFile),
}

pub(super) struct TokenFile {
    pub(super) path: PathBuf,
    /// Where what it says is made known as one.
    pub(super) secrets: Secrets,
    pub(super) seen: Mutex<Option<CachedTokenHeader>>,
}

/// What was in the file, and which version of it that was.
pub(super) struct CachedTokenHeader {
    version: TokenFileVersion,
    header: SecretText,
}

type TokenFileVersion = (u64, u64, i64, i64);

impl RequestAuthorizer for StaticAuthorizer {
    fn authorization_header(&self) -> BoxFuture<'_, Result<Option<SecretText>>> {
        let header = match &self.credential {
            StaticCredential::Nothing => Ok(None),
            StaticCredential::Token(token) => {
                checked_bearer_header(&self.upstream, "token", token.expose_secret()).map(Some)
            }
            StaticCredential::File(file) => {
                file.read_current_header(&self.upstream).map(|(header, _)| Some(header))
            }
        };
        ready(header).boxed()
    }

    fn handle_challenge(
        &self,
        status: u16,
        challenge: Option<String>,
    ) -> BoxFuture<'_, Result<bool>> {
        let answer = match &self.credential {
            _ if status != 401 => Ok(false),
            StaticCredential::Nothing => Err(self.login_required_problem(challenge.as_deref())),
            StaticCredential::Token(_) => Err(token_rejected_problem(&self.upstream, "token")),
            StaticCredential::File(file) => match file.read_current_header(&self.upstream) {
                Ok((_, false)) => Err(token_rejected_problem(&self.upstream, "token_file")),
                other => other.map(|_| true),
            },
        };
        ready(answer).boxed()
    }
}

impl StaticAuthorizer {
    fn login_required_problem(&self, challenge: Option<&str>) -> Problem {
        let name = &self.upstream;
        let oauth = challenge.is_some_and(|it| {
            let it = it.to_ascii_lowercase();
            it.starts_with("bearer") || it.contains("resource_metadata=")
        });
        let (message, hint) = if oauth {
            (
                format!("upstream '{name}' requires a login"),
                format!(
                    "add `auth = \"oauth\"` to [mcp_servers.{name}] in moonlark.toml and run \
                     `moonlark login {name}`, or give it a token of yours: `auth = {{ type = \
                     \"bearer\", token = \"${{TOKEN}}\" }}`"
                ),
            )
        } else {
            (
                format!("upstream '{name}' requires authentication (HTTP 401)"),
                format!("give it credentials, in headers or auth of [mcp_servers.{name}]"),
            )
        };
        Problem::unavailable(message).with_retryable(false).with_hint(hint)
    }
}

impl TokenFile {
    /// The header, and whether it is another than last time.
    fn read_current_header(&self, upstream: &str) -> Result<(SecretText, bool)> {
        const MAX_TOKEN_FILE_BYTES: u64 = 64 << 10;
        let mut seen = self.seen.lock();
        let unusable = |error: std::io::Error| {
            let place = SourceLocation::in_file(self.path.display().to_string());
            Problem::unavailable(format!("the token of {upstream} cannot be read: {error}"))
                .at_location(place)
        };
        let file = File::open(&self.path).map_err(unusable)?;
        let metadata = file.metadata().map_err(unusable)?;
        let version = (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        if let Some(seen) = &*seen
            && seen.version == version
        {
            return Ok((seen.header.clone(), false));
        }
        let mut text = String::new();
        file.take(MAX_TOKEN_FILE_BYTES).read_to_string(&mut text).map_err(unusable)?;
        let header = checked_bearer_header(upstream, "token_file", text.trim())?;
        self.secrets.learn_token("auth.token_file", text.trim());
        let changed = seen.as_ref().is_none_or(|seen| seen.header != header);
        *seen = Some(CachedTokenHeader { version, header: header.clone() });
        Ok((header, changed))
    }
}

/// A header must not become two, nor be nothing.
fn checked_bearer_header(upstream: &str, key: &str, token: &str) -> Result<SecretText> {
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let message =
            format!("the token of {upstream} is empty or holds characters that no token has");
        return Err(Problem::bad_config(message).at_location(auth_key_location(upstream, key)));
    }
    Ok(SecretText::new(format!("Bearer {token}")))
}

fn token_rejected_problem(upstream: &str, key: &str) -> Problem {
    Problem::unavailable(format!("upstream '{upstream}' rejected its token"))
        .with_retryable(false)
        .at_location(auth_key_location(upstream, key))
        .with_hint("set a valid token")
}

fn auth_key_location(upstream: &str, key: &str) -> SourceLocation {
    SourceLocation::in_file(format!("mcp_servers.{upstream}.auth.{key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorizer(credential: StaticCredential) -> StaticAuthorizer {
        StaticAuthorizer { upstream: "git".into(), credential }
    }

    #[tokio::test]
    async fn a_token_file_is_read_again_when_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let secrets = Secrets::with_learning(vec![]);
        let file =
            TokenFile { path: path.clone(), secrets: secrets.clone(), seen: Mutex::new(None) };
        let auth = authorizer(StaticCredential::File(file));
        assert!(auth.authorization_header().await.unwrap_err().message.contains("cannot be read"));
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(auth.authorization_header().await.unwrap(), Some("Bearer one".into()));
        // Nothing new: another try would end the same way.
        auth.handle_challenge(401, None).await.unwrap_err();
        std::fs::write(&path, "second").unwrap();
        assert!(auth.handle_challenge(401, None).await.unwrap());
        assert_eq!(auth.authorization_header().await.unwrap(), Some("Bearer second".into()));
        assert_eq!(secrets.redact_text("a second"), "a [redacted:auth.token_file]");
        std::fs::write(&path, "a b").unwrap();
        auth.authorization_header().await.unwrap_err();
    }

    #[tokio::test]
    async fn a_given_token_is_sent_and_never_shown() {
        let auth = authorizer(StaticCredential::Token("hunter22".into()));
        assert_eq!(auth.authorization_header().await.unwrap(), Some("Bearer hunter22".into()));
        assert!(!auth.handle_challenge(403, None).await.unwrap());
        let problem = auth.handle_challenge(401, None).await.unwrap_err().to_string();
        assert_eq!(
            problem,
            "error[unavailable]: upstream 'git' rejected its token\n  --> \
             mcp_servers.git.auth.token\nhint: set a valid token"
        );
        let auth = authorizer(StaticCredential::Token("a\r\nX-Evil: 1".into()));
        assert!(!auth.authorization_header().await.unwrap_err().to_string().contains("Evil"));
    }

    #[tokio::test]
    async fn an_upstream_that_wants_a_login_says_what_to_configure() {
        let auth = authorizer(StaticCredential::Nothing);
        assert_eq!(auth.authorization_header().await.unwrap(), None);
        let challenge = "Bearer resource_metadata=\"https://mcp.example/x\"".to_owned();
        let hint = auth.handle_challenge(401, Some(challenge)).await.unwrap_err().hint.unwrap();
        assert!(hint.contains("`auth = \"oauth\"` to [mcp_servers.git]"), "{hint}");
        assert!(hint.contains("`moonlark login git`"), "{hint}");
        let problem = auth.handle_challenge(401, Some("Basic".into())).await.unwrap_err();
        assert!(!problem.hint.unwrap().contains("oauth"));
        assert!(!auth.handle_challenge(403, None).await.unwrap());
    }
}
