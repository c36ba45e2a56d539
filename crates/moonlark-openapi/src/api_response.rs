//! What an API answered, as a value: the decoded body, or a Problem in the
//! API's own words.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap};
use moonlark_core::content::{Content, ToolAnswer};
use moonlark_core::limits::format_size;
use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_http::{BodyReadError, read_body, retry_after_seconds};
use reqwest::Response;

use crate::api_error_body;
use crate::pagination::{NextPage, count_items};
use crate::request_body::{self, BodyKind, media_essence};

/// A response that was read to its end.
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

/// The whole body, if it is not longer than `most`.
pub(crate) async fn read_bytes(response: Response, most: usize) -> Result<Vec<u8>> {
    let read = read_body(response, most).await.map_err(|error| match error {
        BodyReadError::Broken(error) => {
            let why = error.without_url().to_string();
            Problem::unavailable(format!("the answer broke off: {}", shorten_text(&why)))
        }
        BodyReadError::TooLong => {
            Problem::limit_exceeded(format!("the answer is larger than {}", format_size(most)))
                .with_hint("ask for less, or raise limits.http_body")
        }
    });
    read.map(Vec::from)
}

impl ApiResponse {
    fn media_type(&self) -> &str {
        self.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default()
    }

    /// The body as what it says it is, or as what it plainly is.
    pub(crate) fn decode_body(&self) -> Value {
        if self.bytes.is_empty() {
            return Value::Null;
        }
        let media = self.media_type();
        let begins = self.bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        let looks = matches!(begins, Some(b'{' | b'['));
        let json = match request_body::body_kind(media) {
            BodyKind::Json => true,
            // Many servers say text, or nothing, and mean JSON.
            _ => looks && (media.is_empty() || media_essence(media).starts_with("text/plain")),
        };
        if json && let Ok(value) = Value::parse_json(&self.bytes) {
            return value;
        }
        Value::text_or_bytes(self.bytes.clone())
    }

    fn is_binary(&self) -> bool {
        let kind = request_body::body_kind(self.media_type());
        let said = kind == BodyKind::Binary && !self.media_type().is_empty();
        said || std::str::from_utf8(&self.bytes).is_err()
    }

    /// The answer of a call that went well.
    pub(crate) fn into_answer(self, url: &str) -> ToolAnswer {
        if self.bytes.is_empty() || !self.is_binary() {
            return ToolAnswer::Value(self.decode_body());
        }
        let media = match media_essence(self.media_type()) {
            media if media.is_empty() => "application/octet-stream".to_owned(),
            media => media,
        };
        let data = Value::from(STANDARD.encode(&self.bytes));
        let kind = media.split('/').next().unwrap_or_default().to_owned();
        let block = match kind.as_str() {
            "image" | "audio" => Value::from_fields([
                ("type", kind.as_str().into()),
                ("data", data),
                ("mimeType", media.into()),
            ]),
            _ => Value::from_fields([
                ("type", "resource".into()),
                (
                    "resource",
                    Value::from_fields([
                        ("uri", url.into()),
                        ("mimeType", media.into()),
                        ("blob", data),
                    ]),
                ),
            ]),
        };
        ToolAnswer::Content(Content { blocks: vec![block], structured: None, extra: Object::new() })
    }

    /// Everything, for those who ask for it.
    pub(crate) fn to_raw_value(&self, next: Option<NextPage>) -> Value {
        let mut headers = Object::new();
        for (name, value) in &self.headers {
            let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
            match headers.get_mut(name.as_str()) {
                Some(Value::Str(known)) => *known = format!("{known}, {text}"),
                _ => drop(headers.insert(name.as_str().to_owned(), text.into())),
            }
        }
        let mut raw = Object::new();
        raw.insert("status".to_owned(), Value::Int(self.status.as_u16().into()));
        raw.insert("headers".to_owned(), Value::Object(headers));
        let body = self.decode_body();
        if let Some(count) = count_items(&body).filter(|_| self.status.is_success()) {
            raw.insert("items".to_owned(), Value::Int(count.try_into().unwrap_or(i64::MAX)));
        }
        raw.insert("body".to_owned(), body);
        if let Some(NextPage { args, found_by }) = next {
            raw.insert("next".to_owned(), Value::Object(args));
            raw.insert("next_by".to_owned(), found_by.method_name().into());
        }
        Value::Object(raw)
    }

    /// What a call that went wrong says.
    pub(crate) fn to_problem(&self, api: &str, operation: &str) -> Problem {
        let body = self.decode_body();
        let own = api_error_body::describe_error_body(&body).map(|text| format!(": {text}"));
        let message = format!("{operation} answered {}{}", self.status, own.unwrap_or_default());
        let code = match self.status.as_u16() {
            401 | 403 => ProblemCode::Forbidden,
            404 | 410 => ProblemCode::NotFound,
            400 | 405 | 406 | 409 | 411..=428 | 431 => ProblemCode::BadRequest,
            408 => ProblemCode::Timeout,
            429 => ProblemCode::RateLimited,
            500..=599 => ProblemCode::Unavailable,
            _ => ProblemCode::ToolError,
        };
        let mut problem = Problem::new(code, message);
        problem.status = Some(self.status.as_u16());
        problem.data = api_error_body::error_data(body).map(Box::new);
        problem.retry_after = retry_after_seconds(&self.headers);
        let again = matches!(self.status.as_u16(), 408 | 425 | 429 | 500 | 502 | 503 | 504);
        let problem = problem.with_retryable(again);
        match (self.status.as_u16(), problem.retry_after) {
            (401 | 403, _) => problem.with_hint(format!("see auth of apis.{api} in moonlark.toml")),
            (_, Some(seconds)) => problem.with_hint(format!("try again in {seconds} seconds")),
            _ => problem,
        }
    }
}
