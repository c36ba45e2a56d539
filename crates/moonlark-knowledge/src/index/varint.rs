//! Varints: seven bits in each byte, the smallest first.

use crate::store::{StoreResult, damaged_error};

pub(super) fn push_varint(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads what [`push_varint`] wrote. Whatever else it is given is a fault, never a panic.
#[derive(Clone, Copy)]
pub(super) struct VarintReader<'a>(&'a [u8]);

impl<'a> VarintReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        VarintReader(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn read_number(&mut self) -> StoreResult<u32> {
        // Nearly all of them are small.
        if let [first @ 0..0x80, rest @ ..] = self.0 {
            self.0 = rest;
            return Ok(u32::from(*first));
        }
        self.read_long_number()
    }

    fn read_long_number(&mut self) -> StoreResult<u32> {
        let mut number = 0_u64;
        for (place, byte) in self.0.iter().take(5).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                self.0 = &self.0[place + 1..];
                return u32::try_from(number).map_err(|_| damaged_error("a number is too large"));
            }
        }
        Err(damaged_error("a number has no end"))
    }

    pub(super) fn read_bytes(&mut self, length: u32) -> StoreResult<&'a [u8]> {
        let (bytes, rest) = self
            .0
            .split_at_checked(length as usize)
            .ok_or_else(|| damaged_error("something ends too early"))?;
        self.0 = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive() {
        let numbers = [0, 1, 127, 128, 300, 16_383, 16_384, 1 << 28, u32::MAX];
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| push_varint(&mut bytes, *number));
        let mut reader = VarintReader::new(&bytes);
        for number in numbers {
            assert_eq!(reader.read_number().unwrap(), number);
        }
        assert!(reader.is_empty());
    }

    #[test]
    fn garbage_is_a_fault() {
        assert!(VarintReader::new(&[]).read_number().is_err());
        assert!(VarintReader::new(&[0x80]).read_number().is_err());
        assert!(VarintReader::new(&[0xff; 9]).read_number().is_err());
        assert!(VarintReader::new(&[0xff, 0xff, 0xff, 0xff, 0x7f]).read_number().is_err());
        assert!(VarintReader::new(&[1]).read_bytes(2).is_err());
    }
}
