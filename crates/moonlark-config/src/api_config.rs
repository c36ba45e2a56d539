//! `[apis.NAME]`: an API by its OpenAPI document.

use std::collections::BTreeMap;

use moonlark_core::Problem;
use moonlark_core::tool::ToolExposure;
use moonlark_openapi::{AuthHost, CallRate, OperationRule};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::source_tool_config::{fixed_arguments, source_name_fault, web_address_fault};
use super::{ConfigSecret, RedactedString, SourceToolConfig, TimeoutSeconds};

/// The API `NAME`: every operation of its document is a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApiConfig {
    /// The document: a file, or an address. OpenAPI 3 or Swagger 2.0, as JSON or
    /// YAML.
    #[schemars(length(min = 1), example = &"petstore.yaml")]
    pub spec: String,
    /// Where the API is, if not where its document says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"https://api.example.com/v1")]
    pub base_url: Option<String>,
    /// Credential of the API: a key, a token, or `user:password`, sent as the document's
    /// security scheme says. For several schemes or client credentials: a table by scheme
    /// name.
    #[serde(skip_serializing_if = "ApiAuthConfig::is_none")]
    pub auth: ApiAuthConfig,
    /// The environment variable that holds the secret, in place of `auth`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"PETSTORE_KEY")]
    pub auth_env: Option<String>,
    /// Further hosts that may be sent `auth` and `headers`, where the document names
    /// some beside the one that the API is at: a host, which means https, or an origin
    /// such as `http://127.0.0.1:8080`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["uploads.example.com"])]
    pub auth_hosts: Vec<String>,
    /// Folders and origins that the document may refer to by `$ref`, beside its own
    /// folder or host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["../common"])]
    pub refs: Vec<String>,
    /// HTTP headers that go with every request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, RedactedString>,
    /// Fixed arguments: sent with every call, hidden from agents and scripts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub frozen_params: BTreeMap<String, Value>,
    /// Only these operations: by name (`listPets`), `tag:pets`, method (`GET`),
    /// path (`/pets/*`), or method and path (`GET /pets/*`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["tag:pets", "GET /store/*"])]
    pub include: Vec<String>,
    /// Not these operations, written the same way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["DELETE"])]
    pub exclude: Vec<String>,
    /// What holds for single operations, by the names that the document has for them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, SourceToolConfig>,
    /// How agents reach its operations: `"code"` from scripts, by `execute`;
    /// `"direct"` as tools of their own; `"both"`; `"auto"` directly for as long
    /// as listing all tools is shorter than explaining scripts, and from scripts
    /// otherwise; `"hidden"` not at all.
    pub expose: ToolExposure,
    /// What the names of its tools begin with where agents see them; when not
    /// set, `NAME__`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"pets_")]
    pub prefix: Option<String>,
    /// Timeout of one call, in seconds; when not set, that of `[limits]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TimeoutSeconds")]
    pub timeout: Option<TimeoutSeconds>,
    /// How often it may be called, such as `10/s`, `600/min` or `5000/h`. More
    /// calls wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"10/s")]
    pub rate: Option<String>,
    /// Calls of it in flight at once. More calls wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 10_000), example = 8)]
    pub concurrency: Option<u32>,
    /// Seconds after which a document from the web is looked at again.
    pub refresh: TimeoutSeconds,
    /// What must not be echoed. Filled when a file is loaded.
    #[serde(skip)]
    pub secrets: Vec<ConfigSecret>,
    /// Variables and files that it needs and that are not there.
    #[serde(skip)]
    pub outage: Vec<Problem>,
    /// What `auth_env` names, if it has a value.
    #[serde(skip)]
    pub auth_value: Option<RedactedString>,
}

/// One secret, or one for each scheme of the document.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ApiAuthConfig {
    #[default]
    None,
    Secret(RedactedString),
    Schemes(BTreeMap<String, ApiSchemeAuth>),
}

impl JsonSchema for ApiAuthConfig {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ApiAuth".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut scheme = ApiClientCredentials::json_schema(generator);
        scheme.insert("type".into(), json!(["string", "object"]));
        json_schema!({
            "type": ["string", "object"],
            "additionalProperties": scheme,
            "examples": ["${PETSTORE_KEY}"],
        })
    }
}

impl ApiAuthConfig {
    fn is_none(&self) -> bool {
        *self == ApiAuthConfig::None
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ApiSchemeAuth {
    Secret(RedactedString),
    Client(ApiClientCredentials),
}

/// OAuth client credentials of one scheme.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct ApiClientCredentials {
    /// OAuth client ID.
    pub client_id: String,
    /// OAuth client secret.
    pub client_secret: RedactedString,
    /// Token endpoint; overrides the document's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_url: Option<String>,
    /// Scopes to request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            spec: String::new(),
            base_url: None,
            auth: ApiAuthConfig::None,
            auth_env: None,
            auth_hosts: Vec::new(),
            refs: Vec::new(),
            headers: BTreeMap::new(),
            frozen_params: BTreeMap::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            tools: BTreeMap::new(),
            expose: ToolExposure::Code,
            prefix: None,
            timeout: None,
            rate: None,
            concurrency: None,
            refresh: TimeoutSeconds::new(3600),
            secrets: Vec::new(),
            outage: Vec::new(),
            auth_value: None,
        }
    }
}

impl ApiConfig {
    /// What of it may be secret, as it was written.
    pub fn secret_values(&self) -> serde_json::Map<String, Value> {
        let mut auth = serde_json::Map::new();
        match &self.auth {
            ApiAuthConfig::None => {}
            ApiAuthConfig::Secret(text) => {
                drop(auth.insert("secret".to_owned(), text.0.clone().into()))
            }
            ApiAuthConfig::Schemes(schemes) => {
                for (name, scheme) in schemes {
                    let text = match scheme {
                        ApiSchemeAuth::Secret(text) => text,
                        ApiSchemeAuth::Client(client) => &client.client_secret,
                    };
                    auth.insert(format!("{name}_secret"), text.0.clone().into());
                }
            }
        }
        let headers = self.headers.iter().map(|(key, it)| (key.clone(), it.0.clone().into()));
        let frozen = self.frozen_params.clone().into_iter().collect();
        serde_json::Map::from_iter([
            ("auth".to_owned(), Value::Object(auth)),
            ("headers".to_owned(), Value::Object(headers.collect())),
            ("frozen_params".to_owned(), Value::Object(frozen)),
            ("tools".to_owned(), fixed_arguments(&self.tools)),
            ("base_url".to_owned(), self.base_url.clone().into()),
            ("spec".to_owned(), self.spec.clone().into()),
        ])
    }

    /// What no schema says. The key, and what is wrong.
    pub fn find_faults(&self, name: &str) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        faults.extend(source_name_fault(name).map(|fault| ("", fault)));
        let wrong = self.auth_hosts.iter().filter_map(|it| it.parse::<AuthHost>().err());
        faults.extend(wrong.map(|message| ("auth_hosts", message)));
        if self.spec.is_empty() {
            faults.push(("", "needs spec, the document".to_owned()));
        }
        let base_url = self.base_url.as_deref().and_then(web_address_fault);
        faults.extend(base_url.map(|message| ("base_url", message)));
        if self.auth_env.is_some() && !self.auth.is_none() {
            faults.push(("auth_env", "auth and auth_env exclude each other".to_owned()));
        }
        if let Some(Err(message)) = self.rate.as_deref().map(str::parse::<CallRate>) {
            faults.push(("rate", message));
        }
        for (key, rules) in [("include", &self.include), ("exclude", &self.exclude)] {
            let wrong = rules.iter().filter_map(|rule| rule.parse::<OperationRule>().err());
            faults.extend(wrong.map(|message| (key, message)));
        }
        faults
    }
    /// The schemes whose `token_url` is no address, and what is wrong with it. The client's
    /// secret would go to where the document says instead.
    pub(crate) fn find_token_url_faults(&self) -> impl Iterator<Item = (&str, String)> {
        let schemes = match &self.auth {
            ApiAuthConfig::Schemes(schemes) => Some(schemes),
            ApiAuthConfig::None | ApiAuthConfig::Secret(_) => None,
        };
        schemes.into_iter().flatten().filter_map(|(scheme, given)| match given {
            ApiSchemeAuth::Client(client) => {
                let fault = client.token_url.as_deref().and_then(web_address_fault)?;
                Some((scheme.as_str(), fault))
            }
            ApiSchemeAuth::Secret(_) => None,
        })
    }
}
