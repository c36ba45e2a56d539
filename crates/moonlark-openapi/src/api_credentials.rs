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

use crate::client_credentials::{ApiTokenCache, ClientCredentials};
use crate::document_tree::TreeNode;
use crate::openapi_document::{DocumentNode, OpenApiDocument};
use crate::param_style::percent_encode;
use crate::parameter::is_reserved_header;
use crate::secret_origins::SecretOrigins;
use crate::swagger;
use moonlark_core::secret::SecretText;

/// What the operator gave us.
#[derive(Clone, Default)]
pub struct ApiCredentials {
    /// For whichever scheme the API asks for.
    pub any: Option<SecretText>,
    /// By the names that the document gives its schemes.
    pub schemes: BTreeMap<String, ApiCredential>,
}

#[derive(Clone)]
pub enum ApiCredential {
    /// A key, a token, or `user:password`.
    Secret(SecretText),
    OAuth(ClientCredentials),
}

/// How a request proves who sends it.
pub(crate) enum PlacedCredential {
    Header(String, String),
    /// `name=value`, encoded.
    Query(String),
    Cookie(String),
}

/// The proofs that an operation asks for, of those we have. None if it can do
/// without, or we have nothing that it takes.
pub(crate) async fn credentials_for_operation(
    document: &OpenApiDocument,
    own: Option<DocumentNode<'_>>,
    credentials: &ApiCredentials,
    tokens: &ApiTokenCache,
    home: &SecretOrigins,
) -> Result<Vec<PlacedCredential>> {
    let Some(names) = choose_schemes(document, own, credentials) else {
        // Nothing is said about it: a secret that was given is for something.
        return Ok(match &credentials.any {
            Some(secret) => vec![fallback_credential(document, secret)],
            None => Vec::new(),
        });
    };
    let mut proofs = Vec::new();
    for name in names {
        proofs.push(credential_for_scheme(document, name, credentials, tokens, home).await?);
    }
    Ok(proofs)
}

/// Whether a request would prove who we are, if it were made.
pub(crate) fn sends_secret(
    document: &OpenApiDocument,
    own: Option<DocumentNode<'_>>,
    credentials: &ApiCredentials,
) -> bool {
    match choose_schemes(document, own, credentials) {
        Some(schemes) => !schemes.is_empty(),
        None => credentials.any.is_some(),
    }
}

/// Where the document says that tokens are given out, by the schemes that we have a
/// client for.
pub(crate) fn collect_token_urls(
    document: &OpenApiDocument,
    credentials: &ApiCredentials,
) -> Vec<(String, Url)> {
    let clients = credentials.schemes.iter().filter_map(|(name, credential)| match credential {
        ApiCredential::OAuth(client) if client.token_url.is_none() => Some(name),
        _ => None,
    });
    let url = |name: &String| {
        let scheme = find_scheme(document, name)?;
        let text = documented_token_url(&scheme)?.to_owned();
        Some((
            name.clone(),
            crate::client_credentials::resolve_token_url(&text, document.base.as_ref())?,
        ))
    };
    clients.filter_map(url).collect()
}

fn documented_token_url(scheme: &Json) -> Option<&str> {
    scheme.get("flows")?.get("clientCredentials")?.get("tokenUrl")?.as_str()
}

/// The schemes that will be used: the first of the requirements that we can
/// meet as a whole. None if the document says nothing about it.
fn choose_schemes<'a>(
    document: &'a OpenApiDocument,
    own: Option<DocumentNode<'a>>,
    credentials: &ApiCredentials,
) -> Option<Vec<&'a str>> {
    let wanted = own.map(|own| own.json).or_else(|| document.root_node().json.get("security"));
    let wanted = wanted.filter(|it| it.is_array())?;
    let have = |name: &str| credentials.any.is_some() || credentials.schemes.contains_key(name);
    let met = wanted
        .items()
        .filter(|it| it.is_object() && !it.is_empty())
        .find(|requirement| requirement.fields().all(|(name, _)| have(name)));
    Some(met.into_iter().flat_map(TreeNode::fields).map(|(name, _)| name).collect())
}

/// Whether a parameter is where one of our secrets goes. Some documents list
/// their keys among the parameters too.
pub(crate) fn covers_parameter(
    document: &OpenApiDocument,
    own: Option<DocumentNode<'_>>,
    credentials: &ApiCredentials,
    place: &str,
    name: &str,
) -> bool {
    let names = choose_schemes(document, own, credentials).unwrap_or_else(|| {
        let first = credentials.any.as_ref().and_then(|_| first_scheme(document));
        first.into_iter().collect()
    });
    names.into_iter().filter_map(|it| find_scheme(document, it)).any(|scheme| {
        let is = |key: &str, text: &str| scheme.get(key).and_then(Json::as_str) == Some(text);
        is("type", "apiKey") && is("in", place) && is("name", name)
    })
}

/// The scheme called `name`, as OpenAPI 3 puts it.
fn find_scheme(document: &OpenApiDocument, name: &str) -> Option<Json> {
    let root = document.root_node();
    if document.swagger {
        let definition = root.json.get("securityDefinitions")?.get(name)?;
        return Some(swagger::convert_security_definition(&definition.to_json()));
    }
    let json = root.json.get("components")?.get("securitySchemes")?.get(name)?;
    let node = document.resolve_node(DocumentNode { json, ..root }).ok()?;
    Some(node.json.to_json())
}

async fn credential_for_scheme(
    document: &OpenApiDocument,
    name: &str,
    credentials: &ApiCredentials,
    tokens: &ApiTokenCache,
    home: &SecretOrigins,
) -> Result<PlacedCredential> {
    let scheme = find_scheme(document, name).unwrap_or_else(|| json!({}));
    let secret = match credentials.schemes.get(name) {
        Some(ApiCredential::OAuth(client)) => {
            let documented = documented_token_url(&scheme);
            let documented = documented.and_then(|it| {
                crate::client_credentials::resolve_token_url(it, document.base.as_ref())
            });
            if let (None, Some(url)) = (&client.token_url, &documented) {
                home.check_token_url(name, url)?;
            }
            let token = tokens.get_token(name, client, documented).await?;
            return Ok(bearer_credential(&token));
        }
        Some(ApiCredential::Secret(secret)) => Some(secret),
        None => credentials.any.as_ref(),
    };
    let Some(secret) = secret else {
        return Err(Problem::internal(format!("no credential for {name}")));
    };
    Ok(place_secret(&scheme, name, secret))
}

/// A secret where no operation says what it wants: by the first scheme there
/// is, or as a bearer token.
fn fallback_credential(document: &OpenApiDocument, secret: &SecretText) -> PlacedCredential {
    match first_scheme(document).and_then(|name| Some((name, find_scheme(document, name)?))) {
        Some((name, scheme)) => place_secret(&scheme, name, secret),
        None => bearer_credential(secret),
    }
}

fn first_scheme(document: &OpenApiDocument) -> Option<&str> {
    let root = document.root_node().json;
    let schemes = if document.swagger {
        root.get("securityDefinitions")
    } else {
        root.get("components").and_then(|it| it.get("securitySchemes"))
    };
    schemes?.fields().next().map(|(name, _)| name)
}

fn place_secret(scheme: &Json, name: &str, secret: &SecretText) -> PlacedCredential {
    let text = |key: &str| scheme.get(key).and_then(Json::as_str).unwrap_or_default();
    let secret_text = secret.expose_secret().to_owned();
    let own = |key: &str| match text(key) {
        "" => name.to_owned(),
        text => text.to_owned(),
    };
    match text("type") {
        "apiKey" => match text("in") {
            "query" => PlacedCredential::Query(encode_pair(&own("name"), &secret_text)),
            "cookie" => PlacedCredential::Cookie(encode_pair(&own("name"), &secret_text)),
            _ => PlacedCredential::Header(own("name"), secret_text),
        },
        "http" => match text("scheme").to_ascii_lowercase().as_str() {
            "basic" => basic_credential(&secret_text),
            "bearer" | "" => bearer_credential(secret),
            _ => PlacedCredential::Header(
                "Authorization".to_owned(),
                format!("{} {secret_text}", text("scheme")),
            ),
        },
        _ => bearer_credential(secret),
    }
}

fn encode_pair(name: &str, secret: &str) -> String {
    format!("{}={}", percent_encode(name, false), percent_encode(secret, false))
}

fn bearer_credential(secret: &SecretText) -> PlacedCredential {
    PlacedCredential::Header(
        "Authorization".to_owned(),
        format!("Bearer {}", secret.expose_secret()),
    )
}

/// `user:password`, or what somebody has encoded already.
fn basic_credential(secret: &str) -> PlacedCredential {
    let encoded = if secret.contains(':') { STANDARD.encode(secret) } else { secret.to_owned() };
    PlacedCredential::Header("Authorization".to_owned(), format!("Basic {encoded}"))
}

/// Put the proofs into a request.
pub(crate) fn apply_credentials(
    proofs: &[PlacedCredential],
    url: &mut Url,
    headers: &mut HeaderMap,
) -> Result<()> {
    let unusable = || {
        Problem::bad_config("a credential of this API cannot be sent in a header")
            .with_hint("look for line breaks or odd characters in it")
    };
    let hidden = |text: &str| -> Result<HeaderValue> {
        let mut value = HeaderValue::from_str(text).map_err(|_| unusable())?;
        value.set_sensitive(true);
        Ok(value)
    };
    for proof in proofs {
        match proof {
            PlacedCredential::Header(name, text) => {
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
            PlacedCredential::Query(pair) => {
                let query = match url.query() {
                    Some(query) if !query.is_empty() => format!("{query}&{pair}"),
                    _ => pair.clone(),
                };
                url.set_query(Some(&query));
            }
            PlacedCredential::Cookie(pair) => {
                let known = headers.get(COOKIE).and_then(|it| it.to_str().ok());
                let all = known.map_or(pair.clone(), |known| format!("{known}; {pair}"));
                headers.insert(COOKIE, hidden(&all)?);
            }
        }
    }
    Ok(())
}
