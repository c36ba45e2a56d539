//! The part of the site that gives out tokens, all of them canaries: an authorization
//! server at `/oauth`, and an MCP server at `/login` that wants one of its tokens.
//!
//! The first token is good until a tool was called with it. From then on only the one that
//! it is renewed for counts, and whoever shows the first is told what it has shown.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::search::Canary;

pub struct Login {
    base: String,
    first: String,
    second: String,
    refresh: String,
    client_secret: String,
    api: String,
    is_retired: AtomicBool,
}

/// Status, headers, body.
pub type Reply = (u16, String, String);

impl Login {
    pub fn new(port: u16, canaries: &[Canary]) -> Login {
        let value = |name: &str| super::world::value(canaries, name).to_owned();
        Login {
            base: format!("http://127.0.0.1:{port}"),
            first: value("oauth_first"),
            second: value("oauth_second"),
            refresh: value("oauth_refresh"),
            client_secret: value("oauth_client"),
            api: value("api_access"),
            is_retired: AtomicBool::new(false),
        }
    }

    /// What it has to say; none for who may go on to what is behind it.
    pub fn answer(&self, path: &str, request: &str) -> Option<Reply> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let body = request.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let base = &self.base;
        match path {
            "/login" => self.guard(request),
            "/.well-known/oauth-protected-resource/login" => said(
                200,
                &json!({"resource": format!("{base}/login"), "authorization_servers": [base]}),
            ),
            "/.well-known/oauth-authorization-server" => said(
                200,
                &json!({
                    "issuer": base,
                    "authorization_endpoint": format!("{base}/oauth/authorize"),
                    "token_endpoint": format!("{base}/oauth/token"),
                    "registration_endpoint": format!("{base}/oauth/register"),
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                    "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                }),
            ),
            "/oauth/register" => {
                let mut client: Value = serde_json::from_str(body).unwrap_or_default();
                client["client_id"] = json!("suite");
                client["client_secret"] = json!(self.client_secret);
                said(201, &client)
            }
            // Nobody is asked anything.
            "/oauth/authorize" => {
                let asked = fields(query);
                let back = format!("{}?code=yes&state={}", asked["redirect_uri"], asked["state"]);
                Some((302, format!("Location: {back}\r\n"), String::new()))
            }
            "/oauth/token" => self.token(&fields(body)),
            _ => None,
        }
    }

    fn guard(&self, request: &str) -> Option<Reply> {
        let shows = |token: &str| request.contains(&format!("Bearer {token}\r\n"));
        if shows(&self.second) {
            return None;
        }
        if shows(&self.first) && !self.is_retired.load(Ordering::Acquire) {
            let calls = request.contains("\"tools/call\"");
            self.is_retired.fetch_or(calls, Ordering::AcqRel);
            return None;
        }
        let shown = request.lines().find_map(|line| line.split_once("Bearer ")).map(|it| it.1);
        let challenge = format!(
            "WWW-Authenticate: Bearer error=\"invalid_token\", error_description=\"you said {}\", resource_metadata=\"{}/.well-known/oauth-protected-resource/login\"\r\n",
            shown.unwrap_or_default(),
            self.base
        );
        Some((401, challenge, format!("you said {request}")))
    }

    fn token(&self, asked: &HashMap<String, String>) -> Option<Reply> {
        let given = |access: &str| json!({"access_token": access, "token_type": "Bearer", "expires_in": 3600});
        match asked.get("grant_type").map(String::as_str) {
            Some("authorization_code") if asked.get("code").is_some_and(|it| it == "yes") => {
                let mut answer = given(&self.first);
                answer["refresh_token"] = json!(self.refresh);
                said(200, &answer)
            }
            Some("refresh_token") if asked.get("refresh_token") == Some(&self.refresh) => {
                said(200, &given(&self.second))
            }
            Some("client_credentials") => said(200, &given(&self.api)),
            _ => said(400, &json!({"error": "invalid_grant", "error_description": asked})),
        }
    }
}

fn said(status: u16, value: &Value) -> Option<Reply> {
    Some((status, "Content-Type: application/json\r\n".to_owned(), value.to_string()))
}

fn fields(form: &str) -> HashMap<String, String> {
    url::form_urlencoded::parse(form.as_bytes()).into_owned().collect()
}
