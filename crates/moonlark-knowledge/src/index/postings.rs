//! Postings of a term in a segment: chunks in order, with term counts.
//!
//! Most terms stand once in the body of a chunk, so that is one number: the
//! distance to the chunk before, and a bit that says so.

use super::varint::{VarintReader, push_varint};
use super::{FIELD_COUNT, TermCounts};
use crate::store::{StoreResult, damaged_error};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkPosting {
    pub(crate) ordinal: u32,
    pub(crate) counts: TermCounts,
}

const ONCE_IN_BODY: TermCounts = [0, 0, 1];
/// Ordinals have a bit less than a number has.
const MAX_ORDINAL: u32 = u32::MAX >> 1;

/// A list in the making.
#[derive(Debug, Clone, Default)]
pub(super) struct PostingList {
    bytes: Vec<u8>,
    next: u32,
    length: u32,
}

impl PostingList {
    /// In the order of ordinals.
    pub(super) fn push(&mut self, posting: ChunkPosting) {
        let ChunkPosting { ordinal, counts } = posting;
        debug_assert!(ordinal >= self.next && ordinal < MAX_ORDINAL);
        let distance = ordinal.saturating_sub(self.next).min(MAX_ORDINAL);
        self.next = ordinal.saturating_add(1);
        self.length += 1;
        if counts == ONCE_IN_BODY {
            push_varint(&mut self.bytes, distance << 1 | 1);
            return;
        }
        push_varint(&mut self.bytes, distance << 1);
        // Which fields have it, then how often each of these.
        let mask =
            (0..FIELD_COUNT).fold(0, |mask, field| mask | u32::from(counts[field] > 0) << field);
        push_varint(&mut self.bytes, mask);
        counts.iter().filter(|count| **count > 0).for_each(|count| {
            push_varint(&mut self.bytes, u32::from(*count));
        });
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many postings.
    pub(super) fn len(&self) -> u32 {
        self.length
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.next, self.length) = (0, 0);
    }
}

/// Give every posting of a list to `each`.
#[inline]
pub(crate) fn decode_postings(bytes: &[u8], mut each: impl FnMut(ChunkPosting)) -> StoreResult<()> {
    let mut reader = VarintReader::new(bytes);
    let mut next = 0_u32;
    while !reader.is_empty() {
        let head = reader.read_number()?;
        let ordinal = next
            .checked_add(head >> 1)
            .filter(|ordinal| *ordinal < MAX_ORDINAL)
            .ok_or_else(|| damaged_error("a list goes too far"))?;
        next = ordinal + 1;
        let mut counts = ONCE_IN_BODY;
        if head & 1 == 0 {
            counts = [0; FIELD_COUNT];
            let mask = reader.read_number()?;
            for (field, count) in counts.iter_mut().enumerate() {
                if mask >> field & 1 == 1 {
                    *count = u16::try_from(reader.read_number()?).unwrap_or(u16::MAX);
                }
            }
        }
        each(ChunkPosting { ordinal, counts });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postings_survive() {
        let postings =
            [(0, [0, 0, 1]), (1, [1, 2, 300]), (2, [0, 0, 2]), (900_000, [u16::MAX, 0, 0])]
                .map(|(ordinal, counts)| ChunkPosting { ordinal, counts });
        let mut list = PostingList::default();
        postings.iter().for_each(|posting| list.push(*posting));
        let mut read = Vec::new();
        decode_postings(list.as_bytes(), |posting| read.push(posting)).unwrap();
        assert_eq!(read, postings);
    }

    #[test]
    fn no_damage_to_a_list_makes_its_reader_panic() {
        let mut list = PostingList::default();
        for number in 0..50_u32 {
            let counts = [0, (number % 3) as u16, (number * 7 % 5) as u16 + 1];
            list.push(ChunkPosting { ordinal: number * 1000, counts });
        }
        for cut in 0..list.as_bytes().len() {
            let _ = decode_postings(&list.as_bytes()[..cut], |_| ());
            let mut broken = list.as_bytes().to_vec();
            broken[cut] ^= 0xff;
            let _ = decode_postings(&broken, |_| ());
        }
    }
}
