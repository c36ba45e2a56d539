//! `url`: take web addresses apart and put them together.

mod percent_escape;

use std::net::Ipv6Addr;

use moonlark_core::limits::format_size;
use moonlark_core::value::{Object, TextOrBytes};
use moonlark_core::{Module, Problem, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use crate::args::{ScriptTable, check_result_size};
pub(crate) use percent_escape::build_query_string;

/// Bytes of an address that is taken apart: data in one can be long.
const MAX_PARSED_URL_BYTES: usize = 1 << 20;

pub(crate) fn module() -> Module {
    Module::new("url", "Take web addresses apart and put them together.")
        .pure()
        .function("parse", "Take an address apart.", parse)
        .example(
            json!({"text": "https://example.com/a%20b?tag=x&tag=y&q=a+b#top"}),
            json!({
                "scheme": "https", "host": "example.com", "port": 443, "path": "/a%20b",
                "query": {"tag": ["x", "y"], "q": "a b"}, "fragment": "top",
            }),
        )
        .fails(json!({"text": "example.com/a"}), "not an address")
        .function("build", "Put an address together; every part is encoded as it needs.", build)
        .example(
            json!({"parts": {"host": "example.com", "path": "/a b", "query": {"q": "1&2", "tag": ["x", "y"]}}}),
            json!("https://example.com/a%20b?q=1%262&tag=x&tag=y"),
        )
        .example(
            json!({"parts": {"scheme": "http", "host": "::1", "port": 8080}}),
            json!("http://[::1]:8080/"),
        )
        .fails(json!({"parts": {"host": "a/b"}}), "host")
        .function("join", "Resolve a reference, such as a link on a page, against its base.", join)
        .example(
            json!({"base": "https://example.com/a/b", "reference": "../c?x=1"}),
            json!("https://example.com/c?x=1"),
        )
        .fails(json!({"base": "/a", "reference": "b"}), "not an address")
        .function("encode", "Percent-encode one part of an address, such as a path segment.", encode)
        .example(json!({"text": "a b/ü~"}), json!("a%20b%2F%C3%BC~"))
        .fails(json!({"text": 1}), "expected a string")
        .function("decode", "Decode percent-encoding; + stays +.", decode)
        .example(json!({"text": "a%20b%2F+"}), json!("a b/+"))
        .fails(json!({"text": "100%"}), "invalid percent-encoding")
        .function("encode_query", "Encode a query; a list repeats its key.", encode_query)
        .example(
            json!({"params": {"all": true, "page": 2, "q": "a b", "tag": ["x", "y"]}}),
            json!("all=true&page=2&q=a%20b&tag=x&tag=y"),
        )
        .fails(json!({"params": {"a": {"b": 1}}}), "params.a is a table")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UrlParseArgs {
    /// A full address.
    text: String,
}

/// The parts of an address; those it does not have are missing.
#[derive(JsonSchema)]
#[schemars(inline)]
struct UrlParsed {
    /// Such as `https`.
    scheme: String,
    /// The user name, decoded.
    username: Option<String>,
    /// The password, decoded.
    password: Option<String>,
    /// The host in lower case; an IPv6 address stands in brackets.
    host: Option<String>,
    /// The port, also where it is the usual one of the scheme.
    port: Option<u16>,
    /// The path as it stands in the address, not decoded.
    path: String,
    /// The query, decoded; a key that occurs several times has a list.
    #[schemars(with = "ScriptTable")]
    query: Object,
    /// What follows `#`, decoded.
    fragment: Option<String>,
}

impl From<UrlParsed> for Value {
    fn from(parsed: UrlParsed) -> Self {
        let fields: [(&str, Value); 8] = [
            ("scheme", parsed.scheme.into()),
            ("username", parsed.username.into()),
            ("password", parsed.password.into()),
            ("host", parsed.host.into()),
            ("port", parsed.port.into()),
            ("path", parsed.path.into()),
            ("query", parsed.query.into()),
            ("fragment", parsed.fragment.into()),
        ];
        let present = fields.into_iter().filter(|(_, value)| *value != Value::Null);
        Value::Object(present.map(|(key, value)| (key.to_owned(), value)).collect())
    }
}

/// What a pair of a query costs in a table, beside its text.
const QUERY_PAIR_OVERHEAD_BYTES: usize = 64;

fn parse(call: &Call, args: UrlParseArgs) -> Result<UrlParsed> {
    let url = parse_url(&args.text)?;
    let query = url.query().unwrap_or_default();
    check_result_size(call, query.len() + QUERY_PAIR_OVERHEAD_BYTES * query.split('&').count())?;
    let decoded =
        |text: &str| String::from_utf8_lossy(&percent_escape::decode_leniently(text)).into_owned();
    Ok(UrlParsed {
        scheme: url.scheme().to_owned(),
        username: Some(url.username()).filter(|name| !name.is_empty()).map(decoded),
        password: url.password().map(decoded),
        host: url.host_str().map(str::to_owned),
        port: url.port_or_known_default(),
        path: url.path().to_owned(),
        query: percent_escape::parse_query(query),
        fragment: url.fragment().map(decoded),
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UrlBuildArgs {
    /// The parts.
    parts: UrlBuildParts,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UrlBuildParts {
    /// `https` when not given.
    scheme: Option<String>,
    /// The user name.
    username: Option<String>,
    /// The password.
    password: Option<String>,
    /// The host, without a port.
    host: String,
    /// The port, where it is not the usual one.
    port: Option<u16>,
    /// The path; what is encoded in it already stays so.
    path: Option<String>,
    /// The query; a list repeats its key.
    query: Option<ScriptTable>,
    /// What follows `#`.
    fragment: Option<String>,
}

fn build(call: &Call, UrlBuildArgs { parts }: UrlBuildArgs) -> Result<String> {
    let query = parts.query.map(|query| build_query_string("parts.query", &query.0)).transpose()?;
    let bad = |part: &str| Problem::bad_request(format!("parts.{part} does not fit in an address"));
    let scheme = parts.scheme.as_deref().unwrap_or("https");
    if !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)) {
        return Err(bad("scheme"));
    }
    let host = match parts.host.parse::<Ipv6Addr>() {
        Ok(ip) => format!("[{ip}]"),
        // set_host would cut a port off and say nothing.
        Err(_) if parts.host.contains(':') && !parts.host.starts_with('[') => {
            return Err(bad("host"));
        }
        Err(_) => parts.host,
    };
    let mut url = Url::parse(&format!("{scheme}://host/")).map_err(|_| bad("scheme"))?;
    url.set_host(Some(&host)).map_err(|_| bad("host"))?;
    url.set_port(parts.port).map_err(|()| bad("port"))?;
    url.set_username(&parts.username.unwrap_or_default()).map_err(|()| bad("username"))?;
    url.set_password(parts.password.as_deref()).map_err(|()| bad("password"))?;
    url.set_path(&parts.path.unwrap_or_default());
    url.set_query(query.as_deref().filter(|query| !query.is_empty()));
    url.set_fragment(parts.fragment.as_deref());
    check_result_size(call, url.as_str().len())?;
    Ok(url.into())
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UrlJoinArgs {
    /// A full address.
    base: String,
    /// An address, or the end of one.
    reference: String,
}

fn join(call: &Call, args: UrlJoinArgs) -> Result<String> {
    check_url_length(&args.reference)?;
    let joined = parse_url(&args.base)?.join(&args.reference);
    let joined = joined.map_err(|error| {
        Problem::bad_request(format!("the reference does not fit the base: {error}"))
    })?;
    check_result_size(call, joined.as_str().len())?;
    Ok(joined.into())
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UrlEncodeArgs {
    /// Text or bytes.
    text: TextOrBytes,
}

fn encode(call: &Call, args: UrlEncodeArgs) -> Result<String> {
    check_result_size(call, percent_escape::encoded_length(&args.text.0))?;
    Ok(percent_escape::percent_encode(&args.text.0))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UrlDecodeArgs {
    /// Percent-encoded text.
    text: String,
}

fn decode(_: &Call, args: UrlDecodeArgs) -> Result<TextOrBytes> {
    percent_escape::decode_strictly(&args.text).map(TextOrBytes)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UrlEncodeQueryArgs {
    /// Names with text, numbers, booleans, or lists of those.
    params: ScriptTable,
}

fn encode_query(call: &Call, args: UrlEncodeQueryArgs) -> Result<String> {
    let query = build_query_string("params", &args.params.0)?;
    check_result_size(call, query.len())?;
    Ok(query)
}

/// Escaping makes an address three times as long, more than once.
fn check_url_length(text: &str) -> Result<()> {
    if text.len() > MAX_PARSED_URL_BYTES {
        return Err(Problem::limit_exceeded(format!(
            "the address is longer than {}",
            format_size(MAX_PARSED_URL_BYTES)
        )));
    }
    Ok(())
}

/// The text itself is not repeated: it may hold a password.
fn parse_url(text: &str) -> Result<Url> {
    check_url_length(text)?;
    Url::parse(text).map_err(|error| {
        Problem::bad_request(format!("this is not an address: {error}"))
            .with_hint("addresses look like https://example.com/path")
    })
}
