//! BM25 over fields (BM25F): what a term says about a document.
//!
//! A term counts by how often it stands in which field, less in fields that
//! are longer than usual, and ever less the more often. Where postings are
//! kept is the caller's affair.

/// How soon a term that is there once is as good as one that is there often.
const BM25_K1: f32 = 1.2;

/// What no term can count more than.
pub const MAX_TERM_WEIGHT: f32 = BM25_K1 + 1.0;

/// What a field's terms count, and how much less in a field longer than usual.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FieldWeight {
    pub weight: f32,
    pub by_length: f32,
}

impl FieldWeight {
    /// What something is called.
    pub const NAME_FIELD: FieldWeight = FieldWeight { weight: 3.0, by_length: 0.5 };
    /// What it is in one line: its title, its summary.
    pub const SUMMARY_FIELD: FieldWeight = FieldWeight { weight: 1.25, by_length: 0.75 };
    /// The headings that something stands under.
    pub const HEADING_FIELD: FieldWeight = FieldWeight { weight: 1.5, by_length: 0.5 };
    /// What is said about it.
    pub const BODY_FIELD: FieldWeight = FieldWeight { weight: 1.0, by_length: 0.75 };
    /// What it takes: the parameters of a function.
    pub const INPUTS_FIELD: FieldWeight = FieldWeight { weight: 0.3, by_length: 0.75 };
    /// What it gives: the fields of a result.
    pub const OUTPUTS_FIELD: FieldWeight = FieldWeight { weight: 0.15, by_length: 0.75 };
    /// Where it is: the path of an operation.
    pub const OPERATION_FIELD: FieldWeight = FieldWeight { weight: 1.5, by_length: 0.5 };
}

/// The fields of a collection, and how long each is on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bm25Weights<const N: usize> {
    fields: [FieldWeight; N],
    /// By which the length of a field is divided.
    usual: [f32; N],
}

impl<const N: usize> Bm25Weights<N> {
    pub fn new(fields: [FieldWeight; N], usual: [f32; N]) -> Self {
        Self { fields, usual: usual.map(|length| length.max(1.0)) }
    }

    /// How much a term counts that is so often in fields so long: from 0 to
    /// [`MAX_TERM_WEIGHT`].
    pub fn term_weight(&self, counts: [u32; N], lengths: [u32; N]) -> f32 {
        let present = (0..N).filter(|field| counts[*field] > 0);
        let weight =
            |field| counts[field] as f32 * self.occurrence_weight(field, lengths[field] as f32);
        saturate_count(present.map(weight).sum())
    }

    /// What a term counts that is in a field of this length once, before
    /// [`saturate_count`].
    pub fn occurrence_weight(&self, field: usize, length: f32) -> f32 {
        let FieldWeight { weight, by_length } = self.fields[field];
        weight / (1.0 - by_length + by_length * length / self.usual[field])
    }
}

/// Ever less for ever more.
pub fn saturate_count(times: f32) -> f32 {
    times * (BM25_K1 + 1.0) / (times + BM25_K1)
}

/// A term in few documents says more than one in many.
pub fn inverse_document_frequency(all: u64, with: u64) -> f32 {
    let (all, with) = (all as f32, with.min(all) as f32);
    ((all - with + 0.5) / (with + 0.5) + 1.0).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn often_counts_more_than_once_but_never_more_than_most() {
        let bm25 =
            Bm25Weights::new([FieldWeight::NAME_FIELD, FieldWeight::BODY_FIELD], [2.0, 100.0]);
        let in_body = |count| bm25.term_weight([0, count], [2, 100]);
        assert!(in_body(0) == 0.0 && in_body(1) < in_body(2) && in_body(2) < in_body(1_000_000));
        assert!(in_body(u32::MAX) <= MAX_TERM_WEIGHT);
        assert!(bm25.term_weight([1, 0], [2, 100]) > in_body(1));
        assert!(bm25.term_weight([0, 1], [2, 10]) > in_body(1));
    }

    #[test]
    fn a_collection_of_nothing_has_no_numbers_that_are_none() {
        let bm25 = Bm25Weights::new([FieldWeight::BODY_FIELD], [0.0]);
        assert!(bm25.term_weight([1], [0]).is_finite());
        for (all, with) in [(0, 0), (1, 1), (1, 2), (1_000_000, 1)] {
            assert!(
                inverse_document_frequency(all, with) > 0.0
                    && inverse_document_frequency(all, with).is_finite(),
                "{all} {with}"
            );
        }
    }
}
