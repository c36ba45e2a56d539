//! Bitmaps over rows: one bit for each chunk or document that is included.

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowBitmap {
    words: Vec<u64>,
    length: usize,
}

impl RowBitmap {
    pub fn all_set(length: usize) -> RowBitmap {
        let mut words = vec![u64::MAX; length.div_ceil(64)];
        if let (Some(last), rest @ 1..) = (words.last_mut(), length % 64) {
            *last = (1 << rest) - 1;
        }
        RowBitmap { words, length }
    }

    pub fn all_clear(length: usize) -> RowBitmap {
        RowBitmap { words: vec![0; length.div_ceil(64)], length }
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    #[inline]
    pub fn get(&self, at: usize) -> bool {
        self.words.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Set one, and grow if there are fewer. Says whether it was set before.
    pub fn insert(&mut self, at: usize) -> bool {
        if at >= self.length {
            // Twice as much as needed, so that growing is rare.
            self.length = (at + 1).max(self.length * 2);
            self.words.resize(self.length.div_ceil(64), 0);
        }
        let before = self.get(at);
        self.words[at / 64] |= 1 << (at % 64);
        before
    }

    /// Clear one. Says whether it was set.
    pub fn remove(&mut self, at: usize) -> bool {
        let before = self.get(at);
        if before {
            self.words[at / 64] &= !(1 << (at % 64));
        }
        before
    }

    pub fn count_set(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Nothing where the bytes are not those of so many bits.
    pub fn from_bytes(bytes: &[u8], length: usize) -> Option<RowBitmap> {
        let (chunks, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = chunks.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let beyond = !length.is_multiple_of(64)
            && words.last().is_some_and(|last| last >> (length % 64) != 0);
        let fits = rest.is_empty() && words.len() == length.div_ceil(64) && !beyond;
        fits.then_some(RowBitmap { words, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_counted_and_kept() {
        let mut bits = RowBitmap::all_set(70);
        assert_eq!(bits.count_set(), 70);
        assert!(bits.remove(69) && !bits.remove(69) && !bits.remove(1000));
        assert_eq!(RowBitmap::from_bytes(&bits.to_bytes(), 70), Some(bits.clone()));
        assert_eq!(RowBitmap::from_bytes(&bits.to_bytes(), 64), None);
        assert_eq!(RowBitmap::from_bytes(&[0xff; 8], 63), None);
        let mut seen = RowBitmap::default();
        assert!(!seen.insert(200) && seen.insert(200));
        assert!(seen.get(200) && !seen.get(199) && !seen.get(5000));
        assert_eq!(RowBitmap::all_set(128).count_set(), 128);
    }
}
