//! What a term says about a document: BM25 over fields (BM25F).
//!
//! A term counts by how often it stands in which field, less in fields that
//! are longer than usual, and ever less the more often. Where postings are
//! kept is the caller's affair.

/// How soon a term that is there once is as good as one that is there often.
const ONCE: f32 = 1.2;

/// What no term can count more than.
pub const MOST: f32 = ONCE + 1.0;

/// What a field's terms count, and how much less in a field longer than usual.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field {
    pub weight: f32,
    pub by_length: f32,
}

impl Field {
    /// What something is called.
    pub const NAME: Field = Field { weight: 3.0, by_length: 0.5 };
    /// What it is in one line: its title, its summary.
    pub const SUMMARY: Field = Field { weight: 1.25, by_length: 0.75 };
    /// The headings that something stands under.
    pub const HEADING: Field = Field { weight: 1.5, by_length: 0.5 };
    /// What is said about it.
    pub const BODY: Field = Field { weight: 1.0, by_length: 0.75 };
    /// What belongs to it, such as the parameters of a function.
    pub const DETAILS: Field = Field { weight: 0.6, by_length: 0.75 };
}

/// The fields of a collection, and how long each is on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bm25<const N: usize> {
    fields: [Field; N],
    /// By which the length of a field is divided.
    usual: [f32; N],
}

impl<const N: usize> Bm25<N> {
    pub fn new(fields: [Field; N], usual: [f32; N]) -> Self {
        Self { fields, usual: usual.map(|length| length.max(1.0)) }
    }

    /// How much a term counts that is so often in fields so long: from 0 to
    /// [`MOST`].
    pub fn weight(&self, counts: [u32; N], lengths: [u32; N]) -> f32 {
        let mut times = 0.0;
        for field in 0..N {
            if counts[field] > 0 {
                times += counts[field] as f32 * self.each(field, lengths[field] as f32);
            }
        }
        saturated(times)
    }

    /// What a term counts that is in a field of this length once, before
    /// [`saturated`].
    pub fn each(&self, field: usize, length: f32) -> f32 {
        let Field { weight, by_length } = self.fields[field];
        weight / (1.0 - by_length + by_length * length / self.usual[field])
    }
}

/// Ever less for ever more.
pub fn saturated(times: f32) -> f32 {
    times * (ONCE + 1.0) / (times + ONCE)
}

/// A term in few documents says more than one in many.
pub fn rarity(all: u64, with: u64) -> f32 {
    let (all, with) = (all as f32, with.min(all) as f32);
    ((all - with + 0.5) / (with + 0.5) + 1.0).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn often_counts_more_than_once_but_never_more_than_most() {
        let bm25 = Bm25::new([Field::NAME, Field::BODY], [2.0, 100.0]);
        let in_body = |count| bm25.weight([0, count], [2, 100]);
        assert!(in_body(0) == 0.0 && in_body(1) < in_body(2) && in_body(2) < in_body(1_000_000));
        assert!(in_body(u32::MAX) <= MOST);
        assert!(bm25.weight([1, 0], [2, 100]) > in_body(1));
        assert!(bm25.weight([0, 1], [2, 10]) > in_body(1));
    }

    #[test]
    fn a_collection_of_nothing_has_no_numbers_that_are_none() {
        let bm25 = Bm25::new([Field::BODY], [0.0]);
        assert!(bm25.weight([1], [0]).is_finite());
        for (all, with) in [(0, 0), (1, 1), (1, 2), (1_000_000, 1)] {
            assert!(rarity(all, with) > 0.0 && rarity(all, with).is_finite(), "{all} {with}");
        }
    }
}
