//! Credentials of an API: which secret goes where in a request.
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
use crate::openapi_document::OpenApiDocument;
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

/// What an operation asks for, and what we have.
pub(crate) struct CredentialChoice<'a> {
    pub(crate) document: &'a OpenApiDocument,
    /// What the operation says itself.
    pub(crate) security: Option<TreeNode<'a>>,
    pub(crate) credentials: &'a ApiCredentials,
}

impl<'a> CredentialChoice<'a> {
    /// The proofs that the operation asks for, of those we have. None if it can do
    /// without, or we have nothing that it takes.
    pub(crate) async fn place_credentials(
        &self,
        tokens: &ApiTokenCache,
        home: &SecretOrigins,
    ) -> Result<Vec<PlacedCredential>> {
        let Some(names) = self.choose_schemes() else {
            // Nothing is said about it: a secret that was given is for something.
            let any = self.credentials.any.as_ref();
            return Ok(any.map(|it| fallback_credential(self.document, it)).into_iter().collect());
        };
        let mut proofs = Vec::new();
        for name in names {
            proofs.push(self.credential_for_scheme(name, tokens, home).await?);
        }
        Ok(proofs)
    }

    /// Whether a request would prove who we are, if it were made.
    pub(crate) fn sends_secret(&self) -> bool {
        match self.choose_schemes() {
            Some(schemes) => !schemes.is_empty(),
            None => self.credentials.any.is_some(),
        }
    }

    /// Whether a parameter is where one of our secrets goes. Some documents list
    /// their keys among the parameters too.
    pub(crate) fn covers_parameter(&self, place: &str, name: &str) -> bool {
        let names = self.choose_schemes().unwrap_or_else(|| {
            let first = self.credentials.any.as_ref().and_then(|_| first_scheme(self.document));
            first.into_iter().collect()
        });
        names.into_iter().filter_map(|it| find_scheme(self.document, it)).any(|scheme| {
            let is = |key: &str, text: &str| scheme.get(key).and_then(Json::as_str) == Some(text);
            is("type", "apiKey") && is("in", place) && is("name", name)
        })
    }

    /// The schemes that will be used: the first of the requirements that we can
    /// meet as a whole. None if the document says nothing about it.
    fn choose_schemes(&self) -> Option<Vec<&'a str>> {
        let wanted = self.security.or_else(|| self.document.root_node().get("security"));
        let wanted = wanted.filter(|it| it.is_array())?;
        let ApiCredentials { any, schemes } = self.credentials;
        let have = |name: &str| any.is_some() || schemes.contains_key(name);
        let met = wanted
            .items()
            .filter(|it| it.is_object() && !it.is_empty())
            .find(|requirement| requirement.fields().all(|(name, _)| have(name)));
        Some(met.into_iter().flat_map(TreeNode::fields).map(|(name, _)| name).collect())
    }

    async fn credential_for_scheme(
        &self,
        name: &str,
        tokens: &ApiTokenCache,
        home: &SecretOrigins,
    ) -> Result<PlacedCredential> {
        let scheme = find_scheme(self.document, name).unwrap_or_else(|| json!({}));
        let secret = match self.credentials.schemes.get(name) {
            Some(ApiCredential::OAuth(client)) => {
                let documented = documented_token_url(self.document, &scheme);
                if let (None, Some(url)) = (&client.token_url, &documented) {
                    home.check_token_url(name, url)?;
                }
                let token = tokens.get_token(name, client, documented).await?;
                return Ok(bearer_credential(&token));
            }
            Some(ApiCredential::Secret(secret)) => Some(secret),
            None => self.credentials.any.as_ref(),
        };
        let secret =
            secret.ok_or_else(|| Problem::internal(format!("no credential for {name}")))?;
        Ok(place_secret(&scheme, name, secret))
    }
}

/// Where the document says that tokens are given out, by the schemes that we have a
/// client for.
pub(crate) fn collect_token_urls(
    document: &OpenApiDocument,
    credentials: &ApiCredentials,
) -> Vec<(String, Url)> {
    let documented = |(name, credential): (&String, &ApiCredential)| match credential {
        ApiCredential::OAuth(client) if client.token_url.is_none() => {
            let scheme = find_scheme(document, name)?;
            Some((name.clone(), documented_token_url(document, &scheme)?))
        }
        _ => None,
    };
    credentials.schemes.iter().filter_map(documented).collect()
}

fn documented_token_url(document: &OpenApiDocument, scheme: &Json) -> Option<Url> {
    let text = scheme.get("flows")?.get("clientCredentials")?.get("tokenUrl")?.as_str()?;
    match &document.base {
        Some(base) => base.join(text).ok(),
        None => Url::parse(text).ok(),
    }
}

/// The schemes by their names, as the document has them.
fn scheme_table(document: &OpenApiDocument) -> Option<TreeNode<'_>> {
    let root = document.root_node();
    if document.swagger {
        root.get("securityDefinitions")
    } else {
        root.get("components")?.get("securitySchemes")
    }
}

/// The scheme called `name`, as OpenAPI 3 puts it.
fn find_scheme(document: &OpenApiDocument, name: &str) -> Option<Json> {
    let definition = scheme_table(document)?.get(name)?;
    if document.swagger {
        return Some(swagger::convert_security_definition(definition));
    }
    document.resolve_node(definition).ok().map(TreeNode::to_json)
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
    scheme_table(document)?.fields().next().map(|(name, _)| name)
}

fn place_secret(scheme: &Json, name: &str, secret: &SecretText) -> PlacedCredential {
    let text = |key: &str| scheme.get(key).and_then(Json::as_str).unwrap_or_default();
    let secret_text = secret.expose_secret();
    let own_name = match text("name") {
        "" => name,
        own => own,
    };
    match (text("type"), text("in"), text("scheme").to_ascii_lowercase().as_str()) {
        ("apiKey", "query", _) => PlacedCredential::Query(encode_pair(own_name, secret_text)),
        ("apiKey", "cookie", _) => PlacedCredential::Cookie(encode_pair(own_name, secret_text)),
        ("apiKey", ..) => PlacedCredential::Header(own_name.to_owned(), secret_text.to_owned()),
        // `user:password`, or what somebody has encoded already.
        ("http", _, "basic") if secret_text.contains(':') => {
            authorization_credential("Basic", &STANDARD.encode(secret_text))
        }
        ("http", _, "basic") => authorization_credential("Basic", secret_text),
        ("http", _, "bearer" | "") => bearer_credential(secret),
        ("http", ..) => authorization_credential(text("scheme"), secret_text),
        _ => bearer_credential(secret),
    }
}

fn encode_pair(name: &str, secret: &str) -> String {
    format!("{}={}", percent_encode(name, false), percent_encode(secret, false))
}

fn bearer_credential(secret: &SecretText) -> PlacedCredential {
    authorization_credential("Bearer", secret.expose_secret())
}

fn authorization_credential(scheme: &str, secret: &str) -> PlacedCredential {
    PlacedCredential::Header("Authorization".to_owned(), format!("{scheme} {secret}"))
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
