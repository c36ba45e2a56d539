//! Log lines on their way to stderr: at once while there are few, and some milliseconds' worth
//! together under load.
//!
//! A server logs each call. A system call for each line, and a reader that wakes for each, cost
//! more than the call of a small tool.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that come sooner after others were written wait for so long.
const LOG_WRITE_INTERVAL: Duration = Duration::from_millis(5);
/// With more than this, whoever logs writes it.
const MAX_WAITING_LOG_BYTES: usize = 64 * 1024;

/// Where log lines go.
#[derive(Clone)]
pub(super) struct LogWriter(Arc<LogLineQueue>);

struct LogLineQueue {
    lines: Mutex<WaitingLogLines>,
    has_lines: Condvar,
}

struct WaitingLogLines {
    output: Box<dyn Write + Send>,
    text: Vec<u8>,
    written_at: Option<Instant>,
    /// Whether a thread writes what waits.
    has_thread: bool,
}

impl LogWriter {
    pub(super) fn new(output: Box<dyn Write + Send>) -> LogWriter {
        let lines =
            WaitingLogLines { output, text: Vec::new(), written_at: None, has_thread: false };
        LogWriter(Arc::new(LogLineQueue { lines: Mutex::new(lines), has_lines: Condvar::new() }))
    }

    /// Write what waits, at the end of the process.
    pub(super) fn flush_lines(&self) {
        let _ = self.0.lines.lock().write_waiting();
    }

    fn add_line(&self, line: &[u8], is_urgent: bool) -> io::Result<()> {
        let mut lines = self.0.lines.lock();
        let was_empty = lines.text.is_empty();
        lines.text.extend_from_slice(line);
        let is_quiet = lines.written_at.is_none_or(|at| at.elapsed() >= LOG_WRITE_INTERVAL);
        if is_urgent || lines.text.len() > MAX_WAITING_LOG_BYTES || (was_empty && is_quiet) {
            return lines.write_waiting();
        }
        if !lines.has_thread {
            let queue = self.0.clone();
            let writes = move || queue.write_forever();
            lines.has_thread = std::thread::Builder::new().name("log".into()).spawn(writes).is_ok();
            if !lines.has_thread {
                return lines.write_waiting();
            }
        } else if was_empty {
            self.0.has_lines.notify_one();
        }
        Ok(())
    }
}

impl LogLineQueue {
    fn write_forever(&self) {
        loop {
            let mut lines = self.lines.lock();
            while lines.text.is_empty() {
                self.has_lines.wait(&mut lines);
            }
            let waited = lines.written_at.map_or(LOG_WRITE_INTERVAL, |at| at.elapsed());
            drop(lines);
            std::thread::sleep(LOG_WRITE_INTERVAL.saturating_sub(waited));
            let _ = self.lines.lock().write_waiting();
        }
    }
}

impl WaitingLogLines {
    fn write_waiting(&mut self) -> io::Result<()> {
        self.written_at = Some(Instant::now());
        let written = self.output.write_all(&self.text);
        self.text.clear();
        written
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LogLineWriter<'a>;

    fn make_writer(&'a self) -> LogLineWriter<'a> {
        LogLineWriter { writer: self, is_urgent: true }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> LogLineWriter<'a> {
        LogLineWriter { writer: self, is_urgent: *metadata.level() <= Level::WARN }
    }
}

/// Takes one event, in one piece.
pub(super) struct LogLineWriter<'a> {
    writer: &'a LogWriter,
    /// What is wrong is seen at once, whatever happens next.
    is_urgent: bool,
}

impl Write for LogLineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Nobody reads the log any more: that is no reason to fail a call.
        let _ = self.writer.add_line(line, self.is_urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Each write as one piece.
    struct WriteSender(Sender<String>);

    impl Write for WriteSender {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn writer() -> (LogWriter, Receiver<String>) {
        let (sender, receiver) = channel();
        (LogWriter::new(Box::new(WriteSender(sender))), receiver)
    }

    #[test]
    fn a_line_after_a_quiet_moment_is_written_at_once() {
        let (writer, written) = writer();
        writer.add_line(b"one\n", false).unwrap();
        assert_eq!(written.try_recv().unwrap(), "one\n");
    }

    #[test]
    fn what_is_wrong_is_written_at_once_after_what_waits() {
        let (writer, written) = writer();
        // As if something had been written a moment ago, however slow this test is.
        writer.0.lines.lock().written_at = Some(Instant::now() + Duration::from_secs(3600));
        writer.0.lines.lock().has_thread = true;
        writer.add_line(b"one\n", false).unwrap();
        assert!(written.try_recv().is_err());
        writer.add_line(b"two\n", true).unwrap();
        assert_eq!(written.try_recv().unwrap(), "one\ntwo\n");
    }

    #[test]
    fn every_line_is_written_in_order_however_many_come() {
        let (writer, written) = writer();
        let lines: Vec<String> = (0..10_000).map(|number| format!("{number}\n")).collect();
        for line in &lines {
            writer.add_line(line.as_bytes(), false).unwrap();
        }
        let expected = lines.concat();
        let mut all = String::new();
        while all.len() < expected.len() {
            all += &written.recv().unwrap();
        }
        assert_eq!(all, expected);
    }

    #[test]
    fn what_waits_is_written_at_the_end() {
        let (writer, written) = writer();
        writer.0.lines.lock().written_at = Some(Instant::now() + Duration::from_secs(3600));
        writer.0.lines.lock().has_thread = true;
        writer.add_line(b"one\n", false).unwrap();
        writer.flush_lines();
        assert_eq!(written.try_recv().unwrap(), "one\n");
    }
}
