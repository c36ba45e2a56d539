//! Whether a client that talks in lines is still there.
//!
//! A client that closes its end has left: it waits for nothing, and some fall over what
//! they read after that. But a script that pipes all its requests in at once has closed
//! its end before it reads the first answer, and wants all of them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A script closes its end no later than this after the first answer.
const MAX_BATCH_TIME: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct ClientPresence {
    /// Lines that came before the first answer. Clients wait for that one.
    lines_ahead: AtomicUsize,
    first_answer: OnceLock<Instant>,
    has_left: AtomicBool,
}

/// What it means that a client has closed its end.
#[derive(Debug, PartialEq, Eq)]
pub enum ClosedInput {
    /// It has left.
    Left,
    /// It was a script that reads answers after it has asked everything.
    Batch,
}

impl ClientPresence {
    /// These bytes came from the client.
    pub fn note_input(&self, bytes: &[u8]) {
        if self.first_answer.get().is_none() {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            self.lines_ahead.fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// Something was written to the client.
    pub fn note_output(&self) {
        if self.first_answer.get().is_none() {
            let _ = self.first_answer.set(Instant::now());
        }
    }

    /// The client has closed its end.
    pub fn close_input(&self) -> ClosedInput {
        let ahead = self.lines_ahead.load(Ordering::Relaxed);
        let is_batch = match self.first_answer.get() {
            None => true,
            Some(first) => ahead > 1 && first.elapsed() < MAX_BATCH_TIME,
        };
        if is_batch {
            return ClosedInput::Batch;
        }
        self.mark_left();
        ClosedInput::Left
    }

    /// Nothing is to be written to the client any more.
    pub fn mark_left(&self) {
        self.has_left.store(true, Ordering::Release);
    }

    /// Whether nothing is to be written any more.
    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_leaves_and_a_script_waits_for_its_answers() {
        let script = ClientPresence::default();
        script.note_input(b"{}\n{}\n");
        assert_eq!(script.close_input(), ClosedInput::Batch);
        script.note_output();
        assert_eq!(script.close_input(), ClosedInput::Batch);
        assert!(!script.has_left());

        let client = ClientPresence::default();
        client.note_input(b"{\"method\":");
        client.note_input(b"\"initialize\"}\n");
        client.note_output();
        client.note_input(b"{}\n{}\n");
        assert!(!client.has_left());
        assert_eq!(client.close_input(), ClosedInput::Left);
        assert!(client.has_left());
    }
}
