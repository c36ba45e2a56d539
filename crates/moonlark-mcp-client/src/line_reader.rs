//! A line reader for streams of bytes, with lines of bounded length.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// How much of a line that is too long is kept, to see what it was.
pub(super) const OVERSIZED_HEAD_BYTES: usize = 4096;

/// Most lines are shorter, and so read in one go and looked at in place.
const LINE_BUFFER_BYTES: usize = 64 * 1024;

#[derive(Debug, PartialEq)]
pub(super) enum InputLine<'a> {
    Whole(&'a [u8]),
    /// Its first bytes.
    TooLong(&'a [u8]),
    /// What was left when the stream ended.
    Half(&'a [u8]),
}

/// Hand every line to `each`, until the stream ends. Blank lines are none.
pub(super) async fn read_lines(
    from: impl AsyncRead + Unpin,
    most: usize,
    mut each: impl FnMut(InputLine<'_>),
) -> io::Result<()> {
    let mut from = BufReader::with_capacity(LINE_BUFFER_BYTES, from);
    // A line that came in several parts.
    let mut parts = Vec::new();
    let mut skipping = false;
    loop {
        let available = from.fill_buf().await?;
        if available.is_empty() {
            match (skipping, parts.as_slice()) {
                (true, head) => each(InputLine::TooLong(head)),
                (false, rest) if rest.trim_ascii().is_empty() => {}
                (false, rest) => each(InputLine::Half(rest)),
            }
            return Ok(());
        }
        let end = memchr::memchr(b'\n', available);
        let part = &available[..end.unwrap_or(available.len())];
        let used = part.len() + usize::from(end.is_some());
        if parts.is_empty() && end.is_some() && !skipping && part.len() <= most {
            if !part.trim_ascii().is_empty() {
                each(InputLine::Whole(part));
            }
            from.consume(used);
            continue;
        }
        if !skipping {
            skipping = parts.len() + part.len() > most;
            let keep = if skipping {
                OVERSIZED_HEAD_BYTES.saturating_sub(parts.len())
            } else {
                part.len()
            };
            parts.extend_from_slice(&part[..keep.min(part.len())]);
        }
        if end.is_some() {
            if skipping {
                each(InputLine::TooLong(&parts[..parts.len().min(OVERSIZED_HEAD_BYTES)]));
            } else if !parts.trim_ascii().is_empty() {
                each(InputLine::Whole(&parts));
            }
        }
        from.consume(used);
        if end.is_some() {
            skipping = false;
            parts.clear();
        }
        // One large line must not cost its memory for ever.
        if skipping || end.is_some() {
            parts.truncate(OVERSIZED_HEAD_BYTES);
            parts.shrink_to(LINE_BUFFER_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `parts`, read as they arrive one by one.
    async fn lines(parts: &[&str], most: usize) -> Vec<String> {
        let mut mock = futures::stream::iter(parts.iter().map(|part| part.as_bytes().to_vec()));
        let reader = Parts { next: Vec::new(), from: &mut mock };
        let mut seen = Vec::new();
        let each = |line: InputLine<'_>| {
            let (mark, bytes) = match line {
                InputLine::Whole(bytes) => ("=", bytes),
                InputLine::TooLong(bytes) => (">", &bytes[..bytes.len().min(8)]),
                InputLine::Half(bytes) => ("-", bytes),
            };
            seen.push(format!("{mark}{}", String::from_utf8_lossy(bytes)));
        };
        read_lines(reader, most, each).await.unwrap();
        seen
    }

    struct Parts<'a, S> {
        next: Vec<u8>,
        from: &'a mut S,
    }

    impl<S: futures::Stream<Item = Vec<u8>> + Unpin> AsyncRead for Parts<'_, S> {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            out: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            let this = &mut *self;
            if this.next.is_empty() {
                let next = futures::StreamExt::poll_next_unpin(&mut *this.from, cx);
                this.next = std::task::ready!(next).unwrap_or_default();
            }
            let count = this.next.len().min(out.remaining());
            out.put_slice(&this.next[..count]);
            this.next.drain(..count);
            std::task::Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn lines_are_whole_however_they_arrive() {
        assert_eq!(lines(&["ab\ncd\r\n\n \nef\n"], 100).await, ["=ab", "=cd\r", "=ef"]);
        assert_eq!(lines(&["a", "b", "\nc", "d\ne", "f\n"], 100).await, ["=ab", "=cd", "=ef"]);
        assert_eq!(lines(&["ab\nhal", "f"], 100).await, ["=ab", "-half"]);
        assert_eq!(lines(&["ab\n  "], 100).await, ["=ab"]);
    }

    #[tokio::test]
    async fn a_line_too_long_is_skipped_and_the_next_one_read() {
        let long = "x".repeat(200_000);
        assert_eq!(
            lines(&["ok\n", &long, &long, "\nok\n"], 1000).await,
            ["=ok", ">xxxxxxxx", "=ok"]
        );
        assert_eq!(lines(&["0123456789\n01234567\n"], 8).await, [">01234567", "=01234567"]);
        assert_eq!(lines(&["0123", "4567", "8\nab\n"], 8).await, [">01234567", "=ab"]);
        assert_eq!(lines(&["0123", "45678"], 8).await, [">01234567"]);
        assert_eq!(lines(&[&long, "\n", &long, "\n"], 300_000).await.len(), 2);
    }
}
