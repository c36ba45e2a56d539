//! How a command ended, as its supervisor reports it: five bytes.

use std::io;

/// A letter and a number.
pub(crate) const LENGTH: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Exited(i32),
    Killed { signal: i32 },
    NotStarted { errno: i32 },
}

impl Ending {
    /// The code a shell would show.
    pub fn exit_code(self) -> i64 {
        match self {
            Ending::Exited(code) => code.into(),
            Ending::Killed { signal } => 128 + i64::from(signal),
            Ending::NotStarted { .. } => 127,
        }
    }

    pub fn not_started(error: &io::Error) -> Ending {
        Ending::NotStarted { errno: error.raw_os_error().unwrap_or(0) }
    }

    pub fn to_bytes(self) -> [u8; LENGTH] {
        let (letter, number) = match self {
            Ending::Exited(code) => (b'e', code),
            Ending::Killed { signal } => (b'k', signal),
            Ending::NotStarted { errno } => (b'n', errno),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [letter, a, b, c, d]
    }

    pub fn from_bytes([letter, a, b, c, d]: [u8; LENGTH]) -> Option<Ending> {
        let number = i32::from_le_bytes([a, b, c, d]);
        match letter {
            b'e' => Some(Ending::Exited(number)),
            b'k' => Some(Ending::Killed { signal: number }),
            b'n' => Some(Ending::NotStarted { errno: number }),
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
            Ending::Exited(0),
            Ending::Exited(255),
            Ending::Killed { signal: 9 },
            Ending::NotStarted { errno: 2 },
        ] {
            assert_eq!(Ending::from_bytes(ending.to_bytes()), Some(ending));
        }
        assert_eq!(Ending::from_bytes(*b"?\0\0\0\0"), None);
    }
}
