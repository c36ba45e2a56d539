//! Why there is no token, in the reader's terms.
//!
//! What an authorization server says is quoted, shortened, and never with one
//! of our secrets in it, should it send one back.

use moonlark_core::problem::cut_message;
use moonlark_core::secret::{SecretValue, Secrets};
use moonlark_core::{Problem, ProblemCode};
use rmcp::transport::auth::AuthError;

use crate::auth_config::OAuthConfig;

/// A person has to log in: what to say, and the command that does it.
pub(super) fn login_needed_problem(upstream: &str, why: &str) -> Problem {
    Problem::unavailable(format!("upstream '{upstream}' {why}"))
        .with_retryable(false)
        .with_hint(format!("run `moonlark login {upstream}`"))
}

pub(super) fn problem_from_auth_error(
    upstream: &str,
    settings: &OAuthConfig,
    error: AuthError,
) -> Problem {
    let mut problem = match error {
        AuthError::MetadataError(said) => {
            let message = format!(
                "how to log in to {upstream} cannot be found out: {}",
                shorten_to_line(&said)
            );
            let private = said.contains("is allowed for OAuth requests")
                || said.contains("address not allowed");
            Problem::unavailable(message).with_optional_hint(private.then(|| {
                "if that address is yours, add `private_addresses = true` to its auth table"
                    .to_owned()
            }))
        }
        AuthError::TokenRefreshFailed(said) => Problem::unavailable(format!(
            "the login of {upstream} was not renewed: {}",
            shorten_to_line(&said)
        )),
        AuthError::RegistrationFailed(said) => {
            let message =
                format!("Moonlark cannot register for {upstream}: {}", shorten_to_line(&said));
            Problem::unavailable(message).with_retryable(false).with_hint(
                "register a client by hand at its authorization server, with \
                 http://127.0.0.1:7332/callback as its redirect address, and set client_id and \
                 redirect_port = 7332 in its auth table",
            )
        }
        AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer } => {
            Problem::new(
                ProblemCode::Denied,
                format!(
                    "the login of {upstream} is not to be trusted: it should come from {}, but \
                     says {}",
                    shorten_to_line(&expected_issuer),
                    shorten_to_line(&received_issuer)
                ),
            )
        }
        AuthError::AuthorizationServerMissingIssuer { expected_issuer } => Problem::new(
            ProblemCode::Denied,
            format!(
                "the login of {upstream} is not to be trusted: it should come from {}, but does \
                 not say so",
                shorten_to_line(&expected_issuer)
            ),
        ),
        other => {
            let message =
                format!("no login for {upstream}: {}", shorten_to_line(&other.to_string()));
            Problem::unavailable(message).with_retryable(false)
        }
    };
    if let Some(secret) = &settings.client_secret {
        let key = "client_secret".to_owned();
        let secret = SecretValue { key, value: secret.expose_secret().to_owned(), by_name: true };
        Secrets::new(vec![secret]).redact_problem(&mut problem);
    }
    problem
}

/// On one line, and not a page of it.
pub(super) fn shorten_to_line(said: &str) -> String {
    const MAX_QUOTED_CHARS: usize = 300;
    let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => cut_message(&line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_sends_our_secret_back_does_not_get_it_printed() {
        let settings = OAuthConfig {
            client_id: Some("me".into()),
            client_secret: Some("hunter22".into()),
            ..OAuthConfig::default()
        };
        let said = format!("bad secret\n\thunter22 {}", "x".repeat(2000));
        let problem =
            problem_from_auth_error("git", &settings, AuthError::ClientCredentialsError(said));
        assert!(problem.message.contains("bad secret [redacted:client_secret] xxx"), "{problem}");
        assert!(problem.message.len() < 500, "{problem}");
    }
}
