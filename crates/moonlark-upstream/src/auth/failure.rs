//! Why there is no token, in the reader's terms.
//!
//! What an authorization server says is quoted, shortened, and never with one
//! of our secrets in it, should it send one back.

use moonlark_core::problem::cut;
use moonlark_core::secret::{Secret, Secrets};
use moonlark_core::{Code, Problem};
use rmcp::transport::auth::AuthError;

use super::config::OAuthSettings;

/// A person has to log in: what to say, and the command that does it.
pub(super) fn login_needed(upstream: &str, why: &str) -> Problem {
    Problem::unavailable(format!("upstream '{upstream}' {why}"))
        .retryable_if(false)
        .hint(format!("run `moonlark login {upstream}`"))
}

pub(super) fn explain(upstream: &str, settings: &OAuthSettings, error: AuthError) -> Problem {
    let mut problem = match error {
        AuthError::MetadataError(said) => {
            let message =
                format!("how to log in to {upstream} cannot be found out: {}", short(&said));
            let private = said.contains("is allowed for OAuth requests")
                || said.contains("address not allowed");
            Problem::unavailable(message).maybe_hint(private.then(|| {
                "if that address is yours, add `private_addresses = true` to its auth table"
                    .to_owned()
            }))
        }
        AuthError::TokenRefreshFailed(said) => Problem::unavailable(format!(
            "the login of {upstream} was not renewed: {}",
            short(&said)
        )),
        AuthError::RegistrationFailed(said) => {
            let message = format!("Moonlark cannot register for {upstream}: {}", short(&said));
            Problem::unavailable(message).retryable_if(false).hint(
                "register a client by hand at its authorization server, with \
                 http://127.0.0.1:7332/callback as its redirect address, and set client_id and \
                 redirect_port = 7332 in its auth table",
            )
        }
        AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer } => {
            Problem::new(
                Code::Denied,
                format!(
                    "the login of {upstream} is not to be trusted: it should come from {}, but \
                     says {}",
                    short(&expected_issuer),
                    short(&received_issuer)
                ),
            )
        }
        AuthError::AuthorizationServerMissingIssuer { expected_issuer } => Problem::new(
            Code::Denied,
            format!(
                "the login of {upstream} is not to be trusted: it should come from {}, but does \
                 not say so",
                short(&expected_issuer)
            ),
        ),
        other => {
            let message = format!("no login for {upstream}: {}", short(&other.to_string()));
            Problem::unavailable(message).retryable_if(false)
        }
    };
    if let Some(secret) = &settings.client_secret {
        let key = "client_secret".to_owned();
        let secret = Secret { key, value: secret.expose().to_owned(), by_name: true };
        Secrets::new(vec![secret]).redact_problem(&mut problem);
    }
    problem
}

/// On one line, and not a page of it.
pub(super) fn short(said: &str) -> String {
    const LONGEST: usize = 300;
    let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => cut(&line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_sends_our_secret_back_does_not_get_it_printed() {
        let settings = OAuthSettings {
            client_id: Some("me".into()),
            client_secret: Some("hunter22".into()),
            ..OAuthSettings::default()
        };
        let said = format!("bad secret\n\thunter22 {}", "x".repeat(2000));
        let problem = explain("git", &settings, AuthError::ClientCredentialsError(said));
        assert!(problem.message.contains("bad secret [redacted:client_secret] xxx"), "{problem}");
        assert!(problem.message.len() < 500, "{problem}");
    }
}
