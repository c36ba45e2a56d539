//! Who we are to an API: which secret goes where in a request.
//!
//! Secrets are put in here, at the very end, and are in nothing that anybody
//! else sees.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue};
use moonlark_core::{Problem, Result};
use serde_json::{Value as Json, json};
use url::Url;

use super::document::{Document, Node};
use super::parameter::is_reserved_header;
use super::secret_home::SecretHome;
use super::style::encode;
use super::swagger;
use super::tokens::{ClientCredentials, Tokens};
use super::tree::Branch;
use crate::mcp::SecretText;

/// What the operator gave us.
#[derive(Clone, Default)]
pub struct Credentials {
    /// For whichever scheme the API asks for.
    pub any: Option<SecretText>,
    /// By the names that the document gives its schemes.
    pub schemes: BTreeMap<String, Credential>,
}

#[derive(Clone)]
pub enum Credential {
    /// A key, a token, or `user:password`.
    Secret(SecretText),
    OAuth(ClientCredentials),
}

/// How a request proves who sends it.
pub(crate) enum Proof {
    Header(String, String),
    /// `name=value`, encoded.
    Query(String),
    Cookie(String),
}

/// The proofs that an operation asks for, of those we have. None if it can do
/// without, or we have nothing that it takes.
pub(crate) async fn proofs(
    document: &Document,
    own: Option<Node<'_>>,
    credentials: &Credentials,
    tokens: &Tokens,
    home: &SecretHome,
) -> Result<Vec<Proof>> {
    let Some(names) = chosen(document, own, credentials) else {
        // Nothing is said about it: a secret that was given is for something.
        return Ok(match &credentials.any {
            Some(secret) => vec![anything(document, secret)],
            None => Vec::new(),
        });
    };
    let mut proofs = Vec::new();
    for name in names {
        proofs.push(proof(document, name, credentials, tokens, home).await?);
    }
    Ok(proofs)
}

/// Whether a request would prove who we are, if it were made.
pub(crate) fn sends_secret(
    document: &Document,
    own: Option<Node<'_>>,
    credentials: &Credentials,
) -> bool {
    match chosen(document, own, credentials) {
        Some(schemes) => !schemes.is_empty(),
        None => credentials.any.is_some(),
    }
}

/// Where the document says that tokens are given out, by the schemes that we have a
/// client for.
pub(crate) fn token_urls(document: &Document, credentials: &Credentials) -> Vec<(String, Url)> {
    let clients = credentials.schemes.iter().filter_map(|(name, credential)| match credential {
        Credential::OAuth(client) if client.token_url.is_none() => Some(name),
        _ => None,
    });
    let url = |name: &String| {
        let scheme = scheme(document, name)?;
        let text = documented_token_url(&scheme)?.to_owned();
        Some((name.clone(), super::tokens::token_url(&text, document.base.as_ref())?))
    };
    clients.filter_map(url).collect()
}

fn documented_token_url(scheme: &Json) -> Option<&str> {
    scheme.get("flows")?.get("clientCredentials")?.get("tokenUrl")?.as_str()
}

/// The schemes that will be used: the first of the requirements that we can
/// meet as a whole. None if the document says nothing about it.
fn chosen<'a>(
    document: &'a Document,
    own: Option<Node<'a>>,
    credentials: &Credentials,
) -> Option<Vec<&'a str>> {
    let wanted = own.map(|own| own.json).or_else(|| document.root().json.get("security"));
    let wanted = wanted.filter(|it| it.is_array())?;
    let have = |name: &str| credentials.any.is_some() || credentials.schemes.contains_key(name);
    let met = wanted
        .items()
        .filter(|it| it.is_object() && !it.is_empty())
        .find(|requirement| requirement.fields().all(|(name, _)| have(name)));
    Some(met.into_iter().flat_map(Branch::fields).map(|(name, _)| name).collect())
}

/// Whether a parameter is where one of our secrets goes. Some documents list
/// their keys among the parameters too.
pub(crate) fn covers(
    document: &Document,
    own: Option<Node<'_>>,
    credentials: &Credentials,
    place: &str,
    name: &str,
) -> bool {
    let names = chosen(document, own, credentials).unwrap_or_else(|| {
        let first = credentials.any.as_ref().and_then(|_| first_scheme(document));
        first.into_iter().collect()
    });
    names.into_iter().filter_map(|it| scheme(document, it)).any(|scheme| {
        let is = |key: &str, text: &str| scheme.get(key).and_then(Json::as_str) == Some(text);
        is("type", "apiKey") && is("in", place) && is("name", name)
    })
}

/// The scheme called `name`, as OpenAPI 3 puts it.
fn scheme(document: &Document, name: &str) -> Option<Json> {
    let root = document.root();
    if document.swagger {
        let definition = root.json.get("securityDefinitions")?.get(name)?;
        return Some(swagger::security(&definition.to_json()));
    }
    let json = root.json.get("components")?.get("securitySchemes")?.get(name)?;
    let node = document.resolve(Node { json, ..root }).ok()?;
    Some(node.json.to_json())
}

async fn proof(
    document: &Document,
    name: &str,
    credentials: &Credentials,
    tokens: &Tokens,
    home: &SecretHome,
) -> Result<Proof> {
    let scheme = scheme(document, name).unwrap_or_else(|| json!({}));
    let secret = match credentials.schemes.get(name) {
        Some(Credential::OAuth(client)) => {
            let documented = documented_token_url(&scheme);
            let documented =
                documented.and_then(|it| super::tokens::token_url(it, document.base.as_ref()));
            if let (None, Some(url)) = (&client.token_url, &documented) {
                home.check_token_url(name, url)?;
            }
            let token = tokens.get(name, client, documented).await?;
            return Ok(bearer(&token));
        }
        Some(Credential::Secret(secret)) => Some(secret),
        None => credentials.any.as_ref(),
    };
    let Some(secret) = secret else {
        return Err(Problem::internal(format!("no credential for {name}")));
    };
    Ok(written(&scheme, name, secret))
}

/// A secret where no operation says what it wants: by the first scheme there
/// is, or as a bearer token.
fn anything(document: &Document, secret: &SecretText) -> Proof {
    match first_scheme(document).and_then(|name| Some((name, scheme(document, name)?))) {
        Some((name, scheme)) => written(&scheme, name, secret),
        None => bearer(secret),
    }
}

fn first_scheme(document: &Document) -> Option<&str> {
    let root = document.root().json;
    let schemes = match document.swagger {
        true => root.get("securityDefinitions"),
        false => root.get("components").and_then(|it| it.get("securitySchemes")),
    };
    schemes?.fields().next().map(|(name, _)| name)
}

fn written(scheme: &Json, name: &str, secret: &SecretText) -> Proof {
    let text = |key: &str| scheme.get(key).and_then(Json::as_str).unwrap_or_default();
    let secret_text = secret.expose().to_owned();
    let own = |key: &str| match text(key) {
        "" => name.to_owned(),
        text => text.to_owned(),
    };
    match text("type") {
        "apiKey" => match text("in") {
            "query" => Proof::Query(pair(&own("name"), &secret_text)),
            "cookie" => Proof::Cookie(pair(&own("name"), &secret_text)),
            _ => Proof::Header(own("name"), secret_text),
        },
        "http" => match text("scheme").to_ascii_lowercase().as_str() {
            "basic" => basic(&secret_text),
            "bearer" | "" => bearer(secret),
            _ => Proof::Header(
                "Authorization".to_owned(),
                format!("{} {secret_text}", text("scheme")),
            ),
        },
        _ => bearer(secret),
    }
}

fn pair(name: &str, secret: &str) -> String {
    format!("{}={}", encode(name, false), encode(secret, false))
}

fn bearer(secret: &SecretText) -> Proof {
    Proof::Header("Authorization".to_owned(), format!("Bearer {}", secret.expose()))
}

/// `user:password`, or what somebody has encoded already.
fn basic(secret: &str) -> Proof {
    let encoded = if secret.contains(':') { STANDARD.encode(secret) } else { secret.to_owned() };
    Proof::Header("Authorization".to_owned(), format!("Basic {encoded}"))
}

/// Put the proofs into a request.
pub(crate) fn apply(proofs: &[Proof], url: &mut Url, headers: &mut HeaderMap) -> Result<()> {
    let unusable = || {
        Problem::bad_config("a credential of this API cannot be sent in a header")
            .hint("look for line breaks or odd characters in it")
    };
    let hidden = |text: &str| -> Result<HeaderValue> {
        let mut value = HeaderValue::from_str(text).map_err(|_| unusable())?;
        value.set_sensitive(true);
        Ok(value)
    };
    for proof in proofs {
        match proof {
            Proof::Header(name, text) => {
                let name = match name.as_str() {
                    name if name.eq_ignore_ascii_case("authorization") => AUTHORIZATION,
                    name if is_reserved_header(name) => {
                        return Err(Problem::bad_config(format!(
                            "the document of this API wants its key in the header {name}, which cannot be set"
                        )));
                    }
                    name => HeaderName::from_bytes(name.as_bytes()).map_err(|_| unusable())?,
                };
                headers.insert(name, hidden(text)?);
            }
            Proof::Query(pair) => {
                let query = match url.query() {
                    Some(query) if !query.is_empty() => format!("{query}&{pair}"),
                    _ => pair.clone(),
                };
                url.set_query(Some(&query));
            }
            Proof::Cookie(pair) => {
                let known = headers.get(COOKIE).and_then(|it| it.to_str().ok());
                let all = known.map_or(pair.clone(), |known| format!("{known}; {pair}"));
                headers.insert(COOKIE, hidden(&all)?);
            }
        }
    }
    Ok(())
}
