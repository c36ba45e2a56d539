//! Log lines on their way to stderr: a thread of their own writes them, at once while there are
//! few, and some milliseconds' worth together under load.
//!
//! A server logs each call. A system call for each line, and a reader that wakes for each, cost
//! more than the call of a small tool; and whoever started the server may never read what it
//! writes. So nobody who logs waits for the log: beyond a bound, lines are lost and counted.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that come sooner after others were written wait for so long.
const LOG_WRITE_INTERVAL: Duration = Duration::from_millis(5);
/// What waits for a reader that does not read.
const MAX_WAITING_LOG_BYTES: usize = 1024 * 1024;
/// How long the end of the process waits for such a reader.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// Where log lines go.
#[derive(Clone)]
pub(super) struct LogWriter(Arc<LogLineQueue>);

struct LogLineQueue {
    lines: Mutex<WaitingLogLines>,
    /// There is something to write, or it is urgent now.
    has_lines: Condvar,
    /// What was taken has been written.
    is_written: Condvar,
    /// What is said of so many lines that were lost.
    lost_lines_notice: fn(u64) -> String,
}

#[derive(Default)]
struct WaitingLogLines {
    text: Vec<u8>,
    lost_lines: u64,
    /// What waits is not to wait for more.
    is_urgent: bool,
    is_being_written: bool,
    /// Where they go, until a thread writes them.
    output: Option<Box<dyn Write + Send>>,
}

impl LogWriter {
    pub(super) fn new(
        output: Box<dyn Write + Send>,
        lost_lines_notice: fn(u64) -> String,
    ) -> LogWriter {
        let lines = WaitingLogLines { output: Some(output), ..WaitingLogLines::default() };
        LogWriter(Arc::new(LogLineQueue {
            lines: Mutex::new(lines),
            has_lines: Condvar::new(),
            is_written: Condvar::new(),
            lost_lines_notice,
        }))
    }

    /// Wait until what waits is written, at the end of the process.
    pub(super) fn flush_lines(&self) {
        let until = Instant::now() + FLUSH_TIMEOUT;
        let mut lines = self.0.lines.lock();
        lines.is_urgent = true;
        self.0.has_lines.notify_one();
        while !lines.text.is_empty() || lines.is_being_written {
            if self.0.is_written.wait_until(&mut lines, until).timed_out() {
                return;
            }
        }
    }

    fn add_line(&self, line: &[u8], is_urgent: bool) {
        let mut lines = self.0.lines.lock();
        if lines.text.len() + line.len() > MAX_WAITING_LOG_BYTES {
            lines.lost_lines += 1;
            return;
        }
        let is_first = lines.text.is_empty();
        lines.text.extend_from_slice(line);
        lines.is_urgent |= is_urgent;
        if let Some(output) = lines.output.take() {
            let queue = self.0.clone();
            let writes = move || queue.write_forever(output);
            // Without a thread there is no log, and everything else goes on.
            let _ = std::thread::Builder::new().name("log".into()).spawn(writes);
        } else if is_first || is_urgent {
            self.0.has_lines.notify_one();
        }
    }
}

impl LogLineQueue {
    fn write_forever(&self, mut output: Box<dyn Write + Send>) {
        let mut quiet_from = Instant::now();
        loop {
            let text = self.take_lines(quiet_from);
            // Nobody may read it any more, which is no reason to stop.
            let _ = output.write_all(&text);
            quiet_from = Instant::now() + LOG_WRITE_INTERVAL;
            self.lines.lock().is_being_written = false;
            self.is_written.notify_all();
        }
    }

    /// What there is to write: at once if it is urgent, and not before `quiet_from` otherwise.
    fn take_lines(&self, quiet_from: Instant) -> Vec<u8> {
        let mut lines = self.lines.lock();
        while lines.text.is_empty() {
            self.has_lines.wait(&mut lines);
        }
        while !lines.is_urgent {
            if self.has_lines.wait_until(&mut lines, quiet_from).timed_out() {
                break;
            }
        }
        let mut text = std::mem::take(&mut lines.text);
        let lost = std::mem::take(&mut lines.lost_lines);
        if lost > 0 {
            text.extend_from_slice((self.lost_lines_notice)(lost).as_bytes());
        }
        lines.is_urgent = false;
        lines.is_being_written = true;
        text
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
        self.writer.add_line(line, self.is_urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

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

    /// Takes a write only when its reader does.
    struct BlockedPipe(SyncSender<String>);

    impl Write for BlockedPipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lost_lines_notice(lost: u64) -> String {
        format!("{lost} lost\n")
    }

    fn writer() -> (LogWriter, Receiver<String>) {
        let (sender, receiver) = channel();
        (LogWriter::new(Box::new(WriteSender(sender)), lost_lines_notice), receiver)
    }

    #[test]
    fn every_line_is_written_in_order_however_many_come() {
        let (writer, written) = writer();
        let lines: Vec<String> = (0..10_000).map(|number| format!("{number}\n")).collect();
        for line in &lines {
            writer.add_line(line.as_bytes(), false);
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
        writer.add_line(b"one\n", false);
        writer.add_line(b"two\n", true);
        writer.flush_lines();
        let all: String = written.try_iter().collect();
        assert_eq!(all, "one\ntwo\n");
    }

    #[test]
    fn nobody_who_logs_waits_for_a_reader_that_does_not_read_and_lost_lines_are_counted() {
        let (sender, reader) = sync_channel(0);
        let writer = LogWriter::new(Box::new(BlockedPipe(sender)), lost_lines_notice);
        let line = "x".repeat(1023) + "\n";
        let (lines, kept) = (5000, MAX_WAITING_LOG_BYTES / line.len());
        for _ in 0..lines {
            writer.add_line(line.as_bytes(), true);
        }
        writer.flush_lines();
        let mut all = String::new();
        while !all.ends_with(" lost\n") {
            all += &reader.recv().unwrap();
        }
        let written = all.matches('x').count() / 1023;
        let lost: usize = all.lines().last().unwrap().trim_end_matches(" lost").parse().unwrap();
        assert_eq!(written + lost, lines);
        // What the thread took before it was stopped, and what waited.
        assert!(written >= kept && written <= 2 * kept, "{written}");
    }
}
