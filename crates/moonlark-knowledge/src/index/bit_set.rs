//! One bit for each chunk of a segment, or for each document.

use crate::store::{StoreResult, damaged_error};

/// Like the bits that vectors are masked by, with a length, in bytes and back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GrowableBitSet {
    bits: moonlark_search::RowBitmap,
    length: usize,
}

impl GrowableBitSet {
    pub(crate) fn all_set(length: usize) -> GrowableBitSet {
        let mut words = vec![u64::MAX; length.div_ceil(64)];
        if let (Some(last), rest @ 1..) = (words.last_mut(), length % 64) {
            *last = (1 << rest) - 1;
        }
        GrowableBitSet { bits: moonlark_search::RowBitmap::from_words(words), length }
    }

    pub(crate) fn all_clear(length: usize) -> GrowableBitSet {
        GrowableBitSet { bits: moonlark_search::RowBitmap::new(length), length }
    }

    pub(crate) fn as_mask(&self) -> &moonlark_search::RowBitmap {
        &self.bits
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> bool {
        self.bits.has_bit(at)
    }

    /// Set one. Says whether it was set before.
    pub(crate) fn insert(&mut self, at: usize) -> bool {
        if at >= self.length {
            // Twice as much as needed, so that growing is rare.
            let mut words = self.bits.as_words().to_vec();
            self.length = (at + 1).max(self.length * 2);
            words.resize(self.length.div_ceil(64), 0);
            self.bits = moonlark_search::RowBitmap::from_words(words);
        }
        let before = self.bits.has_bit(at);
        self.bits.set_bit(at);
        before
    }

    /// Clear one. Says whether it was set.
    pub(crate) fn remove(&mut self, at: usize) -> bool {
        let before = self.bits.has_bit(at);
        self.bits.clear_bit(at);
        before
    }

    pub(crate) fn count_set(&self) -> usize {
        self.bits.count_ones()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.bits.as_words().iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(crate) fn from_bytes(bytes: &[u8], length: usize) -> StoreResult<GrowableBitSet> {
        let (chunks, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = chunks.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let beyond = !length.is_multiple_of(64)
            && words.last().is_some_and(|last| last >> (length % 64) != 0);
        if !rest.is_empty() || words.len() != length.div_ceil(64) || beyond {
            return Err(damaged_error("a set of chunks has another size"));
        }
        Ok(GrowableBitSet { bits: moonlark_search::RowBitmap::from_words(words), length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_counted_and_kept() {
        let mut bits = GrowableBitSet::all_set(70);
        assert_eq!(bits.count_set(), 70);
        assert!(bits.remove(69) && !bits.remove(69) && !bits.remove(1000));
        assert_eq!(GrowableBitSet::from_bytes(&bits.to_bytes(), 70).unwrap(), bits);
        assert!(GrowableBitSet::from_bytes(&bits.to_bytes(), 64).is_err());
        assert!(GrowableBitSet::from_bytes(&[0xff; 8], 63).is_err());
        let mut seen = GrowableBitSet::default();
        assert!(!seen.insert(200) && seen.insert(200));
        assert!(seen.get(200) && !seen.get(199) && !seen.get(5000));
        assert_eq!(GrowableBitSet::all_set(128).count_set(), 128);
    }
}
