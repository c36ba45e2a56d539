//! Server-sent events out of an HTTP answer, one at a time and of bounded
//! size. What they mean is not known here.

use std::time::Duration;

use bytes::{Buf, Bytes};
use reqwest::Response;

use crate::line_reader::OVERSIZED_HEAD_BYTES;

#[derive(Debug, PartialEq)]
pub(super) enum SseEvent {
    /// Its kind, where it has one, and its data.
    Message { kind: Option<String>, data: Vec<u8> },
    /// The first bytes of one that is too large.
    TooLong(Vec<u8>),
}

/// Events as they come in.
pub(super) struct SseEventStream {
    response: Response,
    chunk: Bytes,
    parser: SseParser,
}

impl SseEventStream {
    pub(super) fn new(response: Response, most: usize) -> SseEventStream {
        SseEventStream { response, chunk: Bytes::new(), parser: SseParser::new(most) }
    }

    /// The next one, or none when the stream is over, for whatever reason.
    pub(super) async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.parser.feed_chunk(&mut self.chunk) {
                return Some(event);
            }
            self.chunk = self.response.chunk().await.ok()??;
        }
    }

    /// Where to go on when the stream is over, if the server said.
    pub(super) fn last_event_id(&self) -> Option<&str> {
        self.parser.last_id.as_deref()
    }

    /// How long the server wants us to wait before that.
    pub(super) fn retry_delay(&self) -> Option<Duration> {
        self.parser.retry
    }

    /// Go on with another answer.
    pub(super) fn resume_with(&mut self, response: Response) {
        self.response = response;
        self.chunk = Bytes::new();
        self.parser.reset_for_resume();
    }
}

#[derive(Default)]
struct SseParser {
    most: usize,
    /// A line that is not complete yet.
    line: Vec<u8>,
    /// The last byte was a carriage return: a line feed after it is no line.
    returned: bool,
    kind: Option<String>,
    data: Option<Vec<u8>>,
    id: Option<String>,
    too_long: bool,
    last_id: Option<String>,
    retry: Option<Duration>,
}

impl SseParser {
    fn new(most: usize) -> SseParser {
        SseParser { most, ..SseParser::default() }
    }

    fn reset_for_resume(&mut self) {
        let (last_id, retry) = (self.last_id.take(), self.retry);
        *self = SseParser { last_id, retry, ..SseParser::new(self.most) };
    }

    /// Read on in `chunk`, up to the end of the next event.
    fn feed_chunk(&mut self, chunk: &mut Bytes) -> Option<SseEvent> {
        while !chunk.is_empty() {
            if std::mem::take(&mut self.returned) && chunk[0] == b'\n' {
                chunk.advance(1);
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', chunk) else {
                self.append_line_part(chunk);
                chunk.clear();
                return None;
            };
            let line = chunk.split_to(end);
            self.returned = chunk[0] == b'\r';
            chunk.advance(1);
            let event = if self.line.is_empty() {
                self.process_line(&line)
            } else {
                self.append_line_part(&line);
                let whole = std::mem::take(&mut self.line);
                self.process_line(&whole)
            };
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// A part of a line.
    fn append_line_part(&mut self, part: &[u8]) {
        let room = self.remaining_bytes();
        self.too_long |= part.len() > room;
        let keep = if self.too_long {
            OVERSIZED_HEAD_BYTES.saturating_sub(self.line.len())
        } else {
            part.len()
        };
        self.line.extend_from_slice(&part[..keep.min(part.len())]);
    }

    fn remaining_bytes(&self) -> usize {
        // Field names and the like come on top of the data.
        let used = self.line.len() + self.data.as_ref().map_or(0, Vec::len);
        (self.most + 64).saturating_sub(used)
    }

    /// A whole line; the event that it ends, if it ends one.
    fn process_line(&mut self, line: &[u8]) -> Option<SseEvent> {
        if line.is_empty() {
            return self.dispatch_event();
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => self.append_data(value),
            b"event" => self.kind = Some(bounded_text(value)),
            b"id" if !value.contains(&0) => self.id = Some(bounded_text(value)),
            b"retry" => {
                let text = std::str::from_utf8(value).ok();
                self.retry = text.and_then(|it| it.parse().ok()).map(Duration::from_millis);
            }
            // A comment, or a field of the future.
            _ => {}
        }
        None
    }

    fn append_data(&mut self, value: &[u8]) {
        let data = match &mut self.data {
            None => self.data.insert(value.to_vec()),
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
                data
            }
        };
        if data.len() > self.most || self.too_long {
            self.too_long = true;
            data.truncate(OVERSIZED_HEAD_BYTES);
            data.shrink_to_fit();
        }
    }

    fn dispatch_event(&mut self) -> Option<SseEvent> {
        let kind = self.kind.take();
        if let Some(id) = self.id.take() {
            self.last_id = Some(id).filter(|id| !id.is_empty());
        }
        let data = self.data.take();
        if std::mem::take(&mut self.too_long) {
            return Some(SseEvent::TooLong(data.unwrap_or_default()));
        }
        // An event without data only says where we are.
        data.filter(|data| !data.is_empty()).map(|data| SseEvent::Message { kind, data })
    }
}

/// Names and ids: longer ones are nobody's.
fn bounded_text(value: &[u8]) -> String {
    String::from_utf8_lossy(&value[..value.len().min(1024)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(chunks: &[&str], most: usize) -> (Vec<String>, SseParser) {
        let mut parser = SseParser::new(most);
        let mut seen = Vec::new();
        for chunk in chunks {
            let mut chunk = Bytes::copy_from_slice(chunk.as_bytes());
            while let Some(event) = parser.feed_chunk(&mut chunk) {
                seen.push(match event {
                    SseEvent::Message { kind, data } => {
                        let data = String::from_utf8_lossy(&data).into_owned();
                        kind.map_or(data.clone(), |kind| format!("{kind}: {data}"))
                    }
                    SseEvent::TooLong(head) => {
                        format!("> {}", String::from_utf8_lossy(&head[..head.len().min(4)]))
                    }
                });
            }
        }
        (seen, parser)
    }

    #[test]
    fn events_are_the_same_wherever_the_chunks_are_cut() {
        let text = "\u{feff}: hi\n\nevent: endpoint\ndata: /m\n\nid: 1\r\ndata:a\r\ndata: b\r\n\r\ndata: {\"x\":\rdata:1}\r\rdata: half";
        let expected = ["endpoint: /m", "a\nb", "{\"x\":\n1}"];
        assert_eq!(parse(&[text], 100).0, expected);
        let parts: Vec<String> = text.chars().map(String::from).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        assert_eq!(parse(&parts, 100).0, expected);
    }

    #[test]
    fn an_event_without_data_says_where_to_go_on() {
        let (seen, mut parser) = parse(&["id: 7\nretry: 500\ndata: \n\ndata: x\n\n"], 100);
        assert_eq!(seen, ["x"]);
        assert_eq!(parser.last_id.as_deref(), Some("7"));
        assert_eq!(parser.retry, Some(Duration::from_millis(500)));
        parser.reset_for_resume();
        assert_eq!(parser.last_id.as_deref(), Some("7"));
        // An event that was cut off is not where we are.
        assert_eq!(parse(&["id: 7\ndata: x\n"], 100).1.last_id, None);
    }

    #[test]
    fn an_event_too_large_is_skipped_and_the_next_one_read() {
        let long = "x".repeat(10_000);
        let line = format!("data: {long}\n\ndata: ok\n\n");
        assert_eq!(parse(&[&line], 1000).0, ["> xxxx", "ok"]);
        assert_eq!(parse(&["data: ", &long, &long, "\n\ndata: ok\n\n"], 1000).0, ["> xxxx", "ok"]);
        let lines = format!("{}\ndata: ok\n\n", format!("data: {}\n", "x".repeat(90)).repeat(20));
        let (seen, parser) = parse(&[&lines], 1000);
        assert_eq!(seen, ["> xxxx", "ok"]);
        assert!(parser.line.capacity() < 10_000);
    }
}
