//! Problems of logins: why there is no token.
//!
//! What an authorization server says is quoted, shortened, and never with one
//! of our secrets in it, should it send one back.

use moonlark_core::Problem;
use moonlark_core::problem::cut_message;
use moonlark_core::secret::{SecretValue, Secrets};
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
            let private = said.contains("is allowed for OAuth requests")
                || said.contains("address not allowed");
            let said = shorten_to_line(&said);
            let message = format!("how to log in to {upstream} cannot be found out: {said}");
            Problem::unavailable(message).with_optional_hint(private.then(|| {
                "if that address is yours, add `private_addresses = true` to its auth table"
                    .to_owned()
            }))
        }
        AuthError::TokenRefreshFailed(said) => {
            let said = shorten_to_line(&said);
            Problem::unavailable(format!("the login of {upstream} was not renewed: {said}"))
        }
        AuthError::RegistrationFailed(said) => {
            let said = shorten_to_line(&said);
            Problem::unavailable(format!("Moonlark cannot register for {upstream}: {said}"))
                .with_retryable(false)
                .with_hint(
                    "register a client by hand at its authorization server, with \
                     http://127.0.0.1:7332/callback as its redirect address, and set client_id \
                     and redirect_port = 7332 in its auth table",
                )
        }
        AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer } => {
            let received = shorten_to_line(&received_issuer);
            untrusted_login_problem(upstream, &expected_issuer, &format!("says {received}"))
        }
        AuthError::AuthorizationServerMissingIssuer { expected_issuer } => {
            untrusted_login_problem(upstream, &expected_issuer, "does not say so")
        }
        other => {
            let said = shorten_to_line(&other.to_string());
            Problem::unavailable(format!("no login for {upstream}: {said}")).with_retryable(false)
        }
    };
    if let Some(secret) = &settings.client_secret {
        redact_sent_secret(&mut problem, "client_secret", secret.expose_secret());
    }
    problem
}

fn untrusted_login_problem(upstream: &str, expected_issuer: &str, but: &str) -> Problem {
    Problem::denied(format!(
        "the login of {upstream} is not to be trusted: it should come from {}, but {but}",
        shorten_to_line(expected_issuer)
    ))
}

/// Take what was sent to a server out of what it said to that.
pub(super) fn redact_sent_secret(problem: &mut Problem, key: &str, value: &str) {
    let secret = SecretValue { key: key.to_owned(), value: value.to_owned(), by_name: true };
    Secrets::new(vec![secret]).redact_problem(problem);
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
