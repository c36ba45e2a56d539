//! The 401 challenge: how to authenticate, and who issues tokens (RFC 6750, RFC 9728).

use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use moonlark_core::{Problem, ProblemCode};
use serde_json::json;

use super::issuer::TokenIssuer;
use super::{ConfiguredAuth, RequestAuthenticator};
use crate::http_status;

/// Where the metadata is, for the server as a whole; for MCP, its path follows.
pub(crate) const RESOURCE_METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
const MCP_PATH: &str = "/mcp";
/// A number for errors of servers' own, as the protocol leaves them.
const RPC_UNAUTHORIZED_CODE: i64 = -32001;

/// Where clients register and log in with a server that is its own authorization server,
/// which this one is not.
pub(crate) const LOGIN_PATHS: [&str; 3] = ["/register", "/authorize", "/token"];

/// Why a request is not let through.
pub(super) struct AuthRefusal {
    problem: Box<Problem>,
    error: Option<&'static str>,
    scope: Option<String>,
}

impl AuthRefusal {
    pub(super) fn from_problem(problem: Problem) -> Self {
        Self { problem: Box::new(problem), error: None, scope: None }
    }

    pub(super) fn missing_token() -> Self {
        Self::from_problem(
            Problem::new(ProblemCode::Unauthorized, "authentication required")
                .with_hint("send the header Authorization: Bearer TOKEN; the operator makes tokens with `moonlark token add NAME`"),
        )
    }

    pub(super) fn invalid_token(why: &str) -> Self {
        let problem = Problem::new(ProblemCode::Unauthorized, format!("the token {why}"));
        Self { error: Some("invalid_token"), ..Self::from_problem(problem) }
    }

    pub(super) fn unknown_token() -> Self {
        let mut refusal = Self::invalid_token("is not known to this server");
        let hint =
            "it may have been removed; the operator makes tokens with `moonlark token add NAME`";
        refusal.problem = Box::new(refusal.problem.with_hint(hint));
        refusal
    }

    pub(super) fn insufficient_scope(issuer: &TokenIssuer) -> Self {
        let expected = &issuer.settings.expected;
        let scope = expected.scopes.join(" ");
        let message = format!("the token does not have all of the scope {scope:?}");
        let problem = Problem::forbidden(message)
            .with_hint(format!("ask {} for a token with that scope", expected.issuer));
        Self {
            error: Some("insufficient_scope"),
            scope: Some(scope),
            ..Self::from_problem(problem)
        }
    }

    pub(super) fn into_challenge_response(
        self,
        auth: &RequestAuthenticator,
        request: &Request,
    ) -> Response {
        let mut response = http_status::problem_response(&self.problem);
        // Its body is not read, so that the connection ends: a client that uses it again for
        // its login would find it closed.
        if !request.body().is_end_stream() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if request.uri().path().starts_with(MCP_PATH) {
            response.headers_mut().remove(header::CONTENT_LENGTH);
            *response.body_mut() = self.rpc_error().to_string().into();
        }
        if matches!(self.problem.code, ProblemCode::Unauthorized | ProblemCode::Forbidden) {
            let challenge = self.challenge_header(&auth.configured.load(), request);
            if let Ok(challenge) = HeaderValue::from_str(&challenge) {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            }
        }
        response
    }

    /// The same in the form of the protocol: what else a body says, clients keep to themselves.
    fn rpc_error(&self) -> serde_json::Value {
        let Problem { message, hint, .. } = &*self.problem;
        let message = match hint {
            Some(hint) => format!("{message}: {hint}"),
            None => message.clone(),
        };
        json!({"jsonrpc": "2.0", "id": null, "error": {
            "code": RPC_UNAUTHORIZED_CODE, "message": message, "data": self.problem.to_json(),
        }})
    }

    fn challenge_header(&self, configured: &ConfiguredAuth, request: &Request) -> String {
        let mut parts = vec![r#"realm="moonlark""#.to_owned()];
        parts.extend(self.error.map(|error| format!("error=\"{error}\"")));
        parts.extend(self.scope.as_ref().map(|scope| format!("scope=\"{scope}\"")));
        if configured.issuer.is_some()
            && let Some(base) = base_url(configured, request.headers(), request.uri())
        {
            let is_mcp = request.uri().path().starts_with(MCP_PATH);
            let path = if is_mcp { MCP_PATH } else { "" };
            parts.push(format!("resource_metadata=\"{base}{RESOURCE_METADATA_PATH}{path}\""));
        }
        format!("Bearer {}", parts.join(", "))
    }
}

/// Who hands out tokens for this server. Where only we do, there is nothing that
/// a program could make of it.
pub(crate) async fn serve_resource_metadata(
    State(auth): State<Arc<RequestAuthenticator>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let configured = auth.configured.load_full();
    let (Some(issuer), Some(base)) = (&configured.issuer, base_url(&configured, &headers, &uri))
    else {
        let message = "no identity provider is configured for this server";
        return http_status::problem_response(&Problem::not_found(message));
    };
    let expected = &issuer.settings.expected;
    // For its path, the document names what its own path is made from.
    let path = uri.path().strip_prefix(RESOURCE_METADATA_PATH).unwrap_or_default();
    let mut metadata = json!({
        "resource": format!("{base}{path}"),
        "resource_name": "Moonlark",
        "authorization_servers": [expected.issuer],
        "bearer_methods_supported": ["header"],
    });
    if !expected.scopes.is_empty() {
        metadata["scopes_supported"] = json!(expected.scopes);
    }
    axum::Json(metadata).into_response()
}

/// The answer to a client that tries to log in here. What several clients show of all
/// that a server without a login answers is the description of this error (RFC 6749), so
/// it says what to do instead.
pub(crate) async fn explain_tokens(State(auth): State<Arc<RequestAuthenticator>>) -> Response {
    let configured = auth.configured.load_full();
    let description = match &configured.issuer {
        Some(issuer) => format!(
            "tokens for this server come from {}: log in there, and send the header Authorization: Bearer TOKEN",
            issuer.settings.expected.issuer
        ),
        None => "this server has no login: its operator makes a token with `moonlark token add NAME`, and clients send it in the header Authorization: Bearer TOKEN".to_owned(),
    };
    let error = json!({ "error": "access_denied", "error_description": description });
    (StatusCode::NOT_FOUND, axum::Json(error)).into_response()
}

/// Where clients reach this server. What they say themselves is one of the names
/// that are served here: others were refused before.
fn base_url(configured: &ConfiguredAuth, headers: &HeaderMap, uri: &Uri) -> Option<String> {
    if let Some(url) = &configured.settings.url {
        return Some(url.trim_end_matches('/').to_owned());
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| uri.authority().map(|it| it.as_str()))?;
    Some(format!("http://{host}"))
}
