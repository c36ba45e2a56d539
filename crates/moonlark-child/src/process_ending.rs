//! How a command ended, as its supervisor reports it: five bytes.

use std::io;

/// A letter and a number.
pub(crate) const ENDING_BYTES: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnding {
    Exited(i32),
    Killed { signal: i32 },
    NotStarted { errno: i32 },
}

impl ProcessEnding {
    /// The code a shell would show.
    pub fn exit_code(self) -> i64 {
        match self {
            ProcessEnding::Exited(code) => code.into(),
            ProcessEnding::Killed { signal } => 128 + i64::from(signal),
            ProcessEnding::NotStarted { .. } => 127,
        }
    }

    pub fn from_start_error(error: &io::Error) -> ProcessEnding {
        ProcessEnding::NotStarted { errno: error.raw_os_error().unwrap_or(0) }
    }

    pub fn to_bytes(self) -> [u8; ENDING_BYTES] {
        let (letter, number) = match self {
            ProcessEnding::Exited(code) => (b'e', code),
            ProcessEnding::Killed { signal } => (b'k', signal),
            ProcessEnding::NotStarted { errno } => (b'n', errno),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [letter, a, b, c, d]
    }

    pub fn from_bytes([letter, a, b, c, d]: [u8; ENDING_BYTES]) -> Option<ProcessEnding> {
        let number = i32::from_le_bytes([a, b, c, d]);
        match letter {
            b'e' => Some(ProcessEnding::Exited(number)),
            b'k' => Some(ProcessEnding::Killed { signal: number }),
            b'n' => Some(ProcessEnding::NotStarted { errno: number }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        for ending in [
            ProcessEnding::Exited(0),
            ProcessEnding::Exited(255),
            ProcessEnding::Killed { signal: 9 },
            ProcessEnding::NotStarted { errno: 2 },
        ] {
            assert_eq!(ProcessEnding::from_bytes(ending.to_bytes()), Some(ending));
        }
        assert_eq!(ProcessEnding::from_bytes(*b"?\0\0\0\0"), None);
    }
}
