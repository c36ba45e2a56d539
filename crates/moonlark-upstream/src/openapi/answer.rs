//! What an API answered, as a value: the decoded body, or a Problem in the
//! API's own words.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use moonlark_core::content::{Answer, Content};
use moonlark_core::limits::size;
use moonlark_core::value::{Object, shorten};
use moonlark_core::{Code, Problem, Result, Value};
use reqwest::Response;

use super::body::{self, Kind, essence};
use super::failure;
use super::pages::{NextPage, count_items};

/// A response that was read to its end.
pub(crate) struct Read {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

/// The whole body, if it is not longer than `most`.
pub(crate) async fn read_bytes(mut response: Response, most: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let chunk = response.chunk().await.map_err(|error| {
            let why = error.without_url().to_string();
            Problem::unavailable(format!("the answer broke off: {}", shorten(&why)))
        })?;
        let Some(chunk) = chunk else { return Ok(bytes) };
        if bytes.len() + chunk.len() > most {
            return Err(Problem::limit(format!("the answer is larger than {}", size(most)))
                .hint("ask for less, or raise limits.http_body"));
        }
        bytes.extend_from_slice(&chunk);
    }
}

impl Read {
    fn media(&self) -> &str {
        self.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default()
    }

    /// The body as what it says it is, or as what it plainly is.
    pub(crate) fn body(&self) -> Value {
        if self.bytes.is_empty() {
            return Value::Null;
        }
        let media = self.media();
        let begins = self.bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        let looks = matches!(begins, Some(b'{' | b'['));
        let json = match body::kind(media) {
            Kind::Json => true,
            // Many servers say text, or nothing, and mean JSON.
            _ => looks && (media.is_empty() || essence(media).starts_with("text/plain")),
        };
        if json && let Ok(value) = Value::parse_json(&self.bytes) {
            return value;
        }
        Value::text_or_bytes(self.bytes.clone())
    }

    fn is_binary(&self) -> bool {
        let kind = body::kind(self.media());
        let said = kind == Kind::Binary && !self.media().is_empty();
        said || std::str::from_utf8(&self.bytes).is_err()
    }

    /// The answer of a call that went well.
    pub(crate) fn into_answer(self, url: &str) -> Answer {
        if self.bytes.is_empty() || !self.is_binary() {
            return Answer::Value(self.body());
        }
        let media = match essence(self.media()) {
            media if media.is_empty() => "application/octet-stream".to_owned(),
            media => media,
        };
        let data = Value::from(STANDARD.encode(&self.bytes));
        let kind = media.split('/').next().unwrap_or_default().to_owned();
        let block = match kind.as_str() {
            "image" | "audio" => Value::object([
                ("type", kind.as_str().into()),
                ("data", data),
                ("mimeType", media.into()),
            ]),
            _ => Value::object([
                ("type", "resource".into()),
                (
                    "resource",
                    Value::object([
                        ("uri", url.into()),
                        ("mimeType", media.into()),
                        ("blob", data),
                    ]),
                ),
            ]),
        };
        Answer::Content(Content { blocks: vec![block], structured: None, extra: Object::new() })
    }

    /// Everything, for those who ask for it.
    pub(crate) fn raw(&self, next: Option<NextPage>) -> Value {
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
        let body = self.body();
        if let Some(count) = count_items(&body).filter(|_| self.status.is_success()) {
            raw.insert("items".to_owned(), Value::Int(count.try_into().unwrap_or(i64::MAX)));
        }
        raw.insert("body".to_owned(), body);
        if let Some(NextPage { args, found_by }) = next {
            raw.insert("next".to_owned(), Value::Object(args));
            raw.insert("next_by".to_owned(), found_by.word().into());
        }
        Value::Object(raw)
    }

    /// What a call that went wrong says.
    pub(crate) fn problem(&self, api: &str, operation: &str) -> Problem {
        let body = self.body();
        let own = failure::describe(&body).map(|text| format!(": {text}"));
        let message = format!("{operation} answered {}{}", self.status, own.unwrap_or_default());
        let code = match self.status.as_u16() {
            401 | 403 => Code::Forbidden,
            404 | 410 => Code::NotFound,
            400 | 405 | 406 | 409 | 411..=428 | 431 => Code::BadRequest,
            408 => Code::Timeout,
            429 => Code::RateLimited,
            500..=599 => Code::Unavailable,
            _ => Code::ToolError,
        };
        let mut problem = Problem::new(code, message);
        problem.status = Some(self.status.as_u16());
        problem.data = failure::data(body).map(Box::new);
        problem.retry_after = retry_after(&self.headers);
        let again = matches!(self.status.as_u16(), 408 | 425 | 429 | 500 | 502 | 503 | 504);
        let problem = problem.retryable_if(again);
        match (self.status.as_u16(), problem.retry_after) {
            (401 | 403, _) => problem.hint(format!("see auth of apis.{api} in moonlark.toml")),
            (_, Some(seconds)) => problem.hint(format!("try again in {seconds} seconds")),
            _ => problem,
        }
    }
}

/// Seconds; the other form, a date, is rare, and clocks differ.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<u32> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}
