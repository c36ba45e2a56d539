//! The chunks of a segment, in order: their numbers, documents and lengths.

use super::varint::{VarintReader, push_varint};
use super::{FIELD_COUNT, TermCounts};
use crate::store::{StoreResult, damaged_error};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SegmentMembers {
    /// Numbers of the chunks; they only grow.
    pub(crate) chunks: Vec<u32>,
    pub(crate) documents: Vec<u32>,
    /// Terms in each field.
    pub(crate) lengths: Vec<TermCounts>,
}

impl SegmentMembers {
    pub(crate) fn len(&self) -> usize {
        self.chunks.len()
    }

    pub(super) fn push(&mut self, chunk: u32, document: u32, lengths: TermCounts) {
        self.chunks.push(chunk);
        self.documents.push(document);
        self.lengths.push(lengths);
    }

    /// Where a chunk is.
    pub(crate) fn find_ordinal(&self, chunk: u32) -> Option<usize> {
        self.chunks.binary_search(&chunk).ok()
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len() * 6);
        let mut next = 0;
        let mut before = u32::MAX;
        for ((chunk, document), lengths) in
            self.chunks.iter().zip(&self.documents).zip(&self.lengths)
        {
            push_varint(&mut bytes, chunk - next);
            next = chunk + 1;
            // Chunks of one document stand together.
            let same = *document == before;
            push_varint(&mut bytes, u32::from(lengths[FIELD_COUNT - 1]) << 1 | u32::from(same));
            if !same {
                push_varint(&mut bytes, *document);
            }
            before = *document;
            for length in &lengths[..FIELD_COUNT - 1] {
                push_varint(&mut bytes, u32::from(*length));
            }
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8], length: usize) -> StoreResult<SegmentMembers> {
        let mut reader = VarintReader::new(bytes);
        let mut members = SegmentMembers::default();
        let (mut next, mut before) = (0_u32, u32::MAX);
        let short = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        while !reader.is_empty() {
            let chunk = next
                .checked_add(reader.read_number()?)
                .filter(|chunk| *chunk < u32::MAX)
                .ok_or_else(|| damaged_error("a chunk's number is too large"))?;
            next = chunk + 1;
            let head = reader.read_number()?;
            if head & 1 == 0 {
                before = reader.read_number()?;
            }
            let mut lengths = [0; FIELD_COUNT];
            lengths[FIELD_COUNT - 1] = short(head >> 1);
            for length in &mut lengths[..FIELD_COUNT - 1] {
                *length = short(reader.read_number()?);
            }
            members.push(chunk, before, lengths);
        }
        if members.len() == length {
            Ok(members)
        } else {
            Err(damaged_error("a segment has another number of chunks"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_survive() {
        let mut members = SegmentMembers::default();
        members.push(5, 1, [2, 0, 300]);
        members.push(6, 1, [2, 3, 0]);
        members.push(90_000, 7, [0, 0, u16::MAX]);
        let bytes = members.to_bytes();
        assert_eq!(SegmentMembers::from_bytes(&bytes, 3).unwrap(), members);
        assert!(SegmentMembers::from_bytes(&bytes, 2).is_err());
        assert!(SegmentMembers::from_bytes(&bytes[..bytes.len() - 1], 3).is_err());
        assert_eq!(members.find_ordinal(90_000), Some(2));
        assert_eq!(members.find_ordinal(7), None);
    }
}
