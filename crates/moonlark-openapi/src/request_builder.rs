//! From arguments to a request: the address, the headers, the body.
//!
//! Nothing in a value can become syntax: not a path, a query, a header or the
//! boundary of a part.

use base64::Engine as _;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue};
use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Problem, Result, Value};
use serde_json::Value as Json;
use url::Url;

use crate::operation::OperationPlan;
use crate::operation_input;
use crate::param_style::{self, ParamEncoding, ParamStyle, percent_encode};
use crate::parameter::{OperationParam, ParamLocation, path_placeholders};
use crate::request_body::{BodyKind, BodyPlan as Body};

/// A request as the document wants it, before anybody has logged in.
#[derive(Debug)]
pub(crate) struct ApiRequest {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Bytes>,
}

/// Put the request together. `path` is the operation's, with its placeholders.
pub(crate) fn build_request(
    base: &Url,
    path: &str,
    plan: &OperationPlan,
    mut args: Object,
) -> Result<ApiRequest> {
    let required = plan.body.as_ref().is_some_and(|body| body.required);
    let body = operation_input::take_body(&mut args, &plan.body_arguments, required);
    let given = |place: ParamLocation| {
        let value = |param: &OperationParam| args.get(&param.arg).filter(|it| **it != Value::Null);
        plan.params_in(place).filter_map(move |param| Some((param, value(param)?)))
    };
    let mut url = build_url(base, path, plan, &args)?;

    let mut query: Vec<String> = url.query().map(str::to_owned).into_iter().collect();
    for (param, value) in given(ParamLocation::Query) {
        query.extend(param.writing.encode_pairs(&param.name, value)?);
    }
    for (param, value) in given(ParamLocation::Querystring) {
        query.push(match (param.writing.style, value) {
            (ParamStyle::Form, Value::Object(fields)) => encode_form(fields, None)?,
            (ParamStyle::Form, Value::Str(text)) => percent_encode(text, true),
            _ => percent_encode(&param_style::json_text(value)?, false),
        });
    }
    // The parser would encode in its own way, and less.
    url.set_query((!query.is_empty()).then(|| query.join("&")).as_deref());

    let mut headers = HeaderMap::new();
    for (param, value) in given(ParamLocation::Header) {
        let text = param.writing.encode_in_header(&param.name, value)?;
        let name = HeaderName::from_bytes(param.name.as_bytes())
            .map_err(|_| unusable_param_problem(&param.name, "is no name of a header"))?;
        let value = HeaderValue::from_bytes(text.as_bytes())
            .map_err(|_| unusable_param_problem(&param.name, "cannot be sent in a header"))?;
        headers.insert(name, value);
    }
    let mut cookies = Vec::new();
    for (param, value) in given(ParamLocation::Cookie) {
        cookies.extend(param.writing.encode_pairs(&param.name, value)?);
    }
    if !cookies.is_empty() {
        let value = HeaderValue::from_str(&cookies.join("; "))
            .map_err(|_| unusable_param_problem("cookie", "cannot be sent in a header"))?;
        headers.insert(COOKIE, value);
    }

    let body = match (&plan.body, body) {
        (Some(plan), Some(value)) => {
            let (media, bytes) = encode_body(plan, value)?;
            let media = HeaderValue::from_str(&media)
                .map_err(|_| unusable_param_problem("body", "has a type that cannot be sent"))?;
            headers.insert(CONTENT_TYPE, media);
            Some(bytes)
        }
        _ => None,
    };
    Ok(ApiRequest { url, headers, body })
}

fn unusable_param_problem(name: &str, why: &str) -> Problem {
    Problem::bad_request(format!("parameter '{}' {why}", shorten_text(name)))
}

/// The path with its values in, behind the base address.
fn build_url(base: &Url, path: &str, plan: &OperationPlan, args: &Object) -> Result<Url> {
    let mut filled = path.split('#').next().unwrap_or_default().to_owned();
    // Some documents have queries in their paths.
    let own_query = filled.find('?').map(|at| filled.split_off(at));
    for name in path_placeholders(path) {
        let Some(param) = plan.params_in(ParamLocation::Path).find(|param| param.name == name)
        else {
            continue;
        };
        let text = match args.get(&param.arg) {
            None | Some(Value::Null) => String::new(),
            Some(value) => param.writing.encode_in_path(name, value)?,
        };
        if text.is_empty() {
            // Without it, the address would be that of something else.
            return Err(unusable_param_problem(
                &param.arg,
                "must not be empty: it is part of the path",
            ));
        }
        filled = filled.replacen(&format!("{{{name}}}"), &text, 1);
    }
    let wanted = format!("{}{filled}", base.path().trim_end_matches('/'));
    let climbs = |part: &str| {
        let part = part.to_ascii_lowercase().replace("%2e", ".");
        part == "." || part == ".."
    };
    if filled.split('/').any(climbs) {
        return Err(Problem::bad_request("a parameter would lead out of the path")
            .with_hint("'.' and '..' cannot stand for a whole part of a path"));
    }
    let mut url = base.clone();
    url.set_path(&wanted);
    if let Some(query) = own_query {
        url.set_query(Some(query.trim_start_matches('?')));
    }
    Ok(url)
}

fn encode_body(plan: &Body, value: Value) -> Result<(String, Bytes)> {
    let bytes = match (plan.kind, value) {
        (BodyKind::Json, value) => value.encode_json("body")?.into(),
        (BodyKind::Form, Value::Object(fields)) => {
            encode_form(&fields, plan.encoding.as_ref())?.into()
        }
        (BodyKind::Multipart, Value::Object(fields)) => return encode_multipart(&fields, plan),
        (BodyKind::Multipart, _) => {
            return Err(Problem::bad_request("the body must be a table of parts"));
        }
        (_, Value::Str(text)) => text.into(),
        (BodyKind::Form, _) => {
            return Err(Problem::bad_request("the body must be a table of fields"));
        }
        (_, Value::Bytes(bytes)) => bytes.into(),
        (_, other) => other.encode_json("body")?.into(),
    };
    Ok((plan.media.clone(), bytes))
}

/// Fields as a form sends them.
fn encode_form(fields: &Object, encoding: Option<&Json>) -> Result<String> {
    let mut pairs = Vec::new();
    for (name, value) in fields.iter().filter(|(_, it)| **it != Value::Null) {
        let own = encoding.and_then(|it| it.get(name));
        let text = |key: &str| own.and_then(|it| it.get(key)).and_then(Json::as_str);
        let style = match (text("style"), text("contentType")) {
            (Some("deepObject"), _) => ParamStyle::DeepObject,
            (Some("spaceDelimited"), _) => ParamStyle::Delimited(' '),
            (Some("pipeDelimited"), _) => ParamStyle::Delimited('|'),
            (None, Some(media)) if crate::request_body::body_kind(media) == BodyKind::Json => {
                ParamStyle::Json
            }
            // Without a word about it, servers expect brackets for tables.
            (None, _) if matches!(value, Value::Object(_)) => ParamStyle::DeepObject,
            _ => ParamStyle::Form,
        };
        let explode = own.and_then(|it| it.get("explode")).and_then(Json::as_bool);
        let writing = ParamEncoding { style, explode: explode.unwrap_or(true), reserved: false };
        // A form's space is a plus, and `%20` is understood as well.
        pairs.extend(writing.encode_pairs(name, value)?);
    }
    Ok(pairs.join("&"))
}

/// Parts with a boundary that occurs in none of them.
fn encode_multipart(fields: &Object, plan: &Body) -> Result<(String, Bytes)> {
    let mut parts: Vec<(String, MultipartPart)> = Vec::new();
    for (name, value) in fields.iter().filter(|(_, it)| **it != Value::Null) {
        let own = plan.encoding.as_ref().and_then(|it| it.get(name));
        let media = own.and_then(|it| it.get("contentType")).and_then(Json::as_str);
        let media = media.and_then(|it| it.split(',').next()).map(|it| it.trim().to_owned());
        let is_file = plan.files.contains(name);
        match value {
            Value::Array(items) => {
                for item in items.iter().filter(|it| **it != Value::Null) {
                    parts.push((name.clone(), build_part(item, media.clone(), is_file)?));
                }
            }
            value => parts.push((name.clone(), build_part(value, media, is_file)?)),
        }
    }
    let boundary = random_boundary()?;
    let mut bytes = Vec::new();
    for (name, part) in parts {
        let mut head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"",
            escape_part_name(&name)
        );
        if let Some(file) = &part.file {
            head += &format!("; filename=\"{}\"", escape_part_name(file));
        }
        if let Some(media) = &part.media {
            head += &format!("\r\nContent-Type: {}", media.replace(['\r', '\n'], " "));
        }
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(b"\r\n\r\n");
        bytes.extend_from_slice(&part.bytes);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((format!("{}; boundary={boundary}", plan.media), bytes.into()))
}

struct MultipartPart {
    file: Option<String>,
    media: Option<String>,
    bytes: Vec<u8>,
}

/// A value of a form: text and numbers as they are, tables as JSON, and a file
/// as `{ content, filename?, type? }`, or as its content alone.
fn build_part(value: &Value, media: Option<String>, expects_file: bool) -> Result<MultipartPart> {
    let file = |name: Option<String>, media: Option<String>, bytes: Vec<u8>| MultipartPart {
        file: name.or_else(|| Some("file".to_owned())),
        media: media.or_else(|| Some("application/octet-stream".to_owned())),
        bytes,
    };
    let plain = |media, text: String| MultipartPart { file: None, media, bytes: text.into() };
    Ok(match value {
        Value::Str(text) if expects_file => file(None, media, text.clone().into()),
        Value::Str(text) => plain(media, text.clone()),
        Value::Bytes(bytes) => file(None, media, bytes.clone()),
        Value::Object(fields) if is_file_object(fields) => {
            let text = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
            let bytes = match fields.get("content") {
                Some(Value::Bytes(bytes)) => bytes.clone(),
                _ => text("content").unwrap_or_default().into(),
            };
            file(text("filename"), text("type").or(media), bytes)
        }
        Value::Object(_) | Value::Array(_) => {
            let media = media.or_else(|| Some("application/json".to_owned()));
            plain(media, value.encode_json("body")?)
        }
        other => plain(media, param_style::json_text(other)?),
    })
}

fn is_file_object(fields: &Object) -> bool {
    matches!(fields.get("content"), Some(Value::Str(_) | Value::Bytes(_)))
        && fields.keys().all(|key| matches!(key.as_str(), "content" | "filename" | "type"))
}

/// As browsers write names into the head of a part.
fn escape_part_name(text: &str) -> String {
    text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

fn random_boundary() -> Result<String> {
    let mut random = [0; 18];
    getrandom::fill(&mut random)
        .map_err(|error| Problem::internal(format!("the system has no random numbers: {error}")))?;
    Ok(format!("moonlark-{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random)))
}
