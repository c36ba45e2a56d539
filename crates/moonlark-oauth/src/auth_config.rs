//! `auth` of an upstream in `moonlark.toml`.
//!
//! Where the file is and how `${VAR}` expands is not known here. A secret goes
//! in as text and never comes out again: what is serialised says `[redacted]`.

use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::json;
use url::Url;

use moonlark_core::secret::SecretText;

/// How to authenticate to an upstream.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum UpstreamAuthConfig {
    #[default]
    None,
    Bearer(BearerTokenSource),
    OAuth(Box<OAuthConfig>),
}

/// A token that somebody else takes care of.
#[derive(Debug, Clone, PartialEq)]
pub enum BearerTokenSource {
    Token(SecretText),
    File(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OAuthConfig {
    pub grant: OAuthGrantType,
    pub client_id: Option<String>,
    pub client_secret: Option<SecretText>,
    pub client_metadata_url: Option<Url>,
    pub issuer: Option<String>,
    pub scopes: Vec<String>,
    pub redirect_port: Option<u16>,
    pub private_addresses: bool,
}

/// Who is logged in: a person, or Moonlark itself.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum OAuthGrantType {
    // A person logs in once, with `moonlark login NAME`.
    #[default]
    AuthorizationCode,
    // Moonlark logs in as itself, with `client_id` and `client_secret`.
    ClientCredentials,
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum UpstreamAuthKind {
    #[default]
    None,
    Bearer,
    Oauth,
}

/// How to authenticate: `"none"`, `"oauth"`, or a table with a `type`.
#[derive(Default, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Auth")]
struct UpstreamAuthTable {
    /// Authentication method: `none`, `bearer` for a token of your own, or `oauth`.
    #[serde(rename = "type")]
    kind: UpstreamAuthKind,
    /// For `bearer`: the token.
    #[serde(default, with = "redacted", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"${TOKEN}")]
    token: Option<SecretText>,
    /// For `bearer`: a file that holds the token, read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"/run/secrets/token")]
    token_file: Option<PathBuf>,
    /// For `oauth`: who logs in, a person (`authorization_code`) or Moonlark
    /// itself (`client_credentials`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OAuthGrantType")]
    grant: Option<OAuthGrantType>,
    /// For `oauth`: the client registered by hand; when not set, Moonlark
    /// registers itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"moonlark")]
    client_id: Option<String>,
    /// For `oauth`: the secret of that client.
    #[serde(default, with = "redacted", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"${CLIENT_SECRET}")]
    client_secret: Option<SecretText>,
    /// For `oauth`: an https address where a description of this client is
    /// published, for authorization servers that take one in place of a
    /// registration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"https://example.com/moonlark.json")]
    client_metadata_url: Option<Url>,
    /// For `oauth`: the only authorization server that may see `client_id` and
    /// `client_secret`; when not set, whichever the upstream names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"https://login.example.com")]
    issuer: Option<String>,
    /// For `oauth`: what to ask for; when not set, what the upstream says it
    /// needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["read", "write"])]
    scopes: Vec<String>,
    /// For `oauth`: the port of this machine that a login comes back to; when
    /// not set, any free one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u16", range(min = 1), example = 7332)]
    redirect_port: Option<u16>,
    /// For `oauth`: whether the authorization server may be in the private
    /// network although the upstream's address does not say that it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    private_addresses: bool,
}

impl TryFrom<UpstreamAuthTable> for UpstreamAuthConfig {
    type Error = String;

    fn try_from(table: UpstreamAuthTable) -> Result<Self, String> {
        if let Some(key) = table.find_misplaced_key() {
            let kind = table.kind.type_name();
            return Err(format!("{key} does not belong to type = \"{kind}\""));
        }
        match table.kind {
            UpstreamAuthKind::None => Ok(UpstreamAuthConfig::None),
            UpstreamAuthKind::Bearer => {
                let source = match (table.token, table.token_file) {
                    (Some(token), None) => BearerTokenSource::Token(token),
                    (None, Some(file)) => BearerTokenSource::File(file),
                    _ => {
                        return Err("type = \"bearer\" needs either token or token_file".to_owned());
                    }
                };
                Ok(UpstreamAuthConfig::Bearer(source))
            }
            UpstreamAuthKind::Oauth => build_oauth_config(table)
                .map(|settings| UpstreamAuthConfig::OAuth(Box::new(settings))),
        }
    }
}

fn build_oauth_config(table: UpstreamAuthTable) -> Result<OAuthConfig, String> {
    let grant = table.grant.unwrap_or_default();
    if table.client_secret.is_some() && table.client_id.is_none() {
        return Err("client_secret needs a client_id".to_owned());
    }
    if grant == OAuthGrantType::ClientCredentials && table.client_secret.is_none() {
        return Err("grant = \"client_credentials\" needs client_id and client_secret".to_owned());
    }
    if let Some(url) = &table.client_metadata_url
        && (url.scheme() != "https" || url.path() == "/")
    {
        return Err("client_metadata_url must be an https address with a path".to_owned());
    }
    Ok(OAuthConfig {
        grant,
        client_id: table.client_id,
        client_secret: table.client_secret,
        client_metadata_url: table.client_metadata_url,
        issuer: table.issuer,
        scopes: table.scopes,
        redirect_port: table.redirect_port,
        private_addresses: table.private_addresses,
    })
}

impl UpstreamAuthKind {
    fn type_name(self) -> &'static str {
        match self {
            UpstreamAuthKind::None => "none",
            UpstreamAuthKind::Bearer => "bearer",
            UpstreamAuthKind::Oauth => "oauth",
        }
    }
}

impl UpstreamAuthTable {
    /// A key that is set and means nothing with this type.
    fn find_misplaced_key(&self) -> Option<&'static str> {
        let mut set = [
            (UpstreamAuthKind::Bearer, "token", self.token.is_some()),
            (UpstreamAuthKind::Bearer, "token_file", self.token_file.is_some()),
            (UpstreamAuthKind::Oauth, "grant", self.grant.is_some()),
            (UpstreamAuthKind::Oauth, "client_id", self.client_id.is_some()),
            (UpstreamAuthKind::Oauth, "client_secret", self.client_secret.is_some()),
            (UpstreamAuthKind::Oauth, "client_metadata_url", self.client_metadata_url.is_some()),
            (UpstreamAuthKind::Oauth, "issuer", self.issuer.is_some()),
            (UpstreamAuthKind::Oauth, "scopes", !self.scopes.is_empty()),
            (UpstreamAuthKind::Oauth, "redirect_port", self.redirect_port.is_some()),
            (UpstreamAuthKind::Oauth, "private_addresses", self.private_addresses),
        ]
        .into_iter();
        set.find(|(kind, _, set)| *set && *kind != self.kind).map(|(_, key, _)| key)
    }
}

impl<'de> Deserialize<'de> for UpstreamAuthConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct AuthConfigVisitor;

        impl<'de> Visitor<'de> for AuthConfigVisitor {
            type Value = UpstreamAuthConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"none\", \"oauth\" or a table with a type")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<UpstreamAuthConfig, E> {
                match word {
                    "none" => Ok(UpstreamAuthConfig::None),
                    "oauth" => Ok(UpstreamAuthConfig::OAuth(Box::default())),
                    other => Err(E::custom(format_args!(
                        "{other:?} is no way to authenticate; write \"none\", \"oauth\" or a table \
                         such as {{ type = \"bearer\", token = \"${{TOKEN}}\" }}"
                    ))),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<UpstreamAuthConfig, A::Error> {
                let table = UpstreamAuthTable::deserialize(MapAccessDeserializer::new(map))?;
                UpstreamAuthConfig::try_from(table).map_err(de::Error::custom)
            }
        }

        from.deserialize_any(AuthConfigVisitor)
    }
}

impl Serialize for UpstreamAuthConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let table = match self.clone() {
            UpstreamAuthConfig::None => return to.serialize_str("none"),
            UpstreamAuthConfig::Bearer(BearerTokenSource::Token(token)) => UpstreamAuthTable {
                kind: UpstreamAuthKind::Bearer,
                token: Some(token),
                ..UpstreamAuthTable::default()
            },
            UpstreamAuthConfig::Bearer(BearerTokenSource::File(file)) => UpstreamAuthTable {
                kind: UpstreamAuthKind::Bearer,
                token_file: Some(file),
                ..UpstreamAuthTable::default()
            },
            UpstreamAuthConfig::OAuth(settings) if *settings == OAuthConfig::default() => {
                return to.serialize_str("oauth");
            }
            UpstreamAuthConfig::OAuth(settings) => UpstreamAuthTable {
                kind: UpstreamAuthKind::Oauth,
                grant: Some(settings.grant),
                client_id: settings.client_id,
                client_secret: settings.client_secret,
                client_metadata_url: settings.client_metadata_url,
                issuer: settings.issuer,
                scopes: settings.scopes,
                redirect_port: settings.redirect_port,
                private_addresses: settings.private_addresses,
                ..UpstreamAuthTable::default()
            },
        };
        table.serialize(to)
    }
}

/// The table's schema, which takes a word as well.
impl JsonSchema for UpstreamAuthConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Auth".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = UpstreamAuthTable::json_schema(generator);
        schema.insert("type".into(), json!(["string", "object"]));
        schema.insert("default".into(), json!("none"));
        schema
    }
}

/// Read as text, written without it.
mod redacted {
    use serde::{Deserialize, Deserializer, Serializer};

    use moonlark_core::secret::SecretText;

    pub(super) fn serialize<S: Serializer>(
        _: &Option<SecretText>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str("[redacted]")
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<SecretText>, D::Error> {
        Ok(Some(String::deserialize(from)?.into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, to_value};

    use super::*;

    fn read(value: Value) -> Result<UpstreamAuthConfig, String> {
        from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_word_or_a_table_says_how_to_log_in() {
        assert_eq!(read(json!("none")), Ok(UpstreamAuthConfig::None));
        assert_eq!(read(json!("oauth")), Ok(UpstreamAuthConfig::OAuth(Box::default())));
        assert_eq!(read(json!({ "type": "oauth" })), Ok(UpstreamAuthConfig::OAuth(Box::default())));
        assert_eq!(
            read(json!({ "type": "bearer", "token": "abc" })),
            Ok(UpstreamAuthConfig::Bearer(BearerTokenSource::Token("abc".into())))
        );
        assert_eq!(
            read(json!({ "type": "bearer", "token_file": "t" })),
            Ok(UpstreamAuthConfig::Bearer(BearerTokenSource::File("t".into())))
        );
        let settings = OAuthConfig {
            grant: OAuthGrantType::ClientCredentials,
            client_id: Some("me".into()),
            client_secret: Some("hunter22".into()),
            scopes: vec!["read".into()],
            redirect_port: Some(7332),
            ..OAuthConfig::default()
        };
        let written = json!({
            "type": "oauth", "grant": "client_credentials", "client_id": "me",
            "client_secret": "hunter22", "scopes": ["read"], "redirect_port": 7332,
        });
        assert_eq!(read(written), Ok(UpstreamAuthConfig::OAuth(Box::new(settings))));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        for (value, expected) in [
            (json!("bearer"), "\"bearer\" is no way to authenticate"),
            (json!({ "type": "bearer" }), "needs either token or token_file"),
            (json!({ "type": "bearer", "token": "a", "token_file": "b" }), "needs either"),
            (json!({ "type": "bearer", "token": "a", "scopes": ["x"] }), "scopes does not belong"),
            (json!({ "type": "oauth", "token": "a" }), "token does not belong"),
            (json!({ "type": "oauth", "clientid": "a" }), "unknown field `clientid`"),
            (json!({ "type": "oauth", "client_secret": "a" }), "needs a client_id"),
            (json!({ "type": "oauth", "grant": "client_credentials" }), "needs client_id and"),
            (json!({ "type": "oauth", "client_metadata_url": "http://x/y" }), "must be an https"),
        ] {
            let message = read(value.clone()).expect_err(&value.to_string());
            assert!(message.contains(expected), "{value}: {message}");
        }
    }

    #[test]
    fn secrets_are_neither_printed_nor_written() {
        let auth = read(json!({
            "type": "oauth", "client_id": "me", "client_secret": "hunter22",
        }));
        let auth = auth.unwrap();
        assert!(!format!("{auth:?}").contains("hunter22"));
        assert_eq!(
            to_value(&auth).unwrap(),
            json!({
                "type": "oauth", "grant": "authorization_code", "client_id": "me",
                "client_secret": "[redacted]",
            })
        );
        assert_eq!(to_value(UpstreamAuthConfig::None).unwrap(), json!("none"));
        assert_eq!(to_value(UpstreamAuthConfig::OAuth(Box::default())).unwrap(), json!("oauth"));
    }
}
