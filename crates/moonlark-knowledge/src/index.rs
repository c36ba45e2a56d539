//! The index: which chunks have which words, and what each chunk means.
//!
//! It consists of segments. Every commit of a sync adds one with the chunks it
//! brought; a chunk that goes is marked dead in its segment, and segments are
//! merged now and then, which leaves the dead behind. All of it is in the same
//! file and the same transaction as the documents. Inside of a segment a chunk
//! is known by its place there, its ordinal.
//!
//! It knows terms and vectors as they are handed over, not where they are from,
//! and it ranks nothing: that is [`crate::search`].

mod bits;
mod blocks;
mod coding;
mod draft;
mod members;
mod merge;
mod postings;
mod segments;
mod snapshot;
mod vectors;

pub(crate) use bits::Bits;
#[cfg(test)]
pub(crate) use blocks::every_posting;
pub(crate) use blocks::{TermList, find_list, terms_beginning};
pub(crate) use draft::Draft;
pub(crate) use merge::{settle, tidy_up};
pub(crate) use postings::{Posting, decode};
pub(crate) use segments::Segments;
pub(crate) use snapshot::{Current, Loaded, Snapshot};
pub(crate) use vectors::{
    Model, chunks_in, drop_other_models, model_named, model_of, row_of, segments_without,
    write_vectors,
};

/// The fields that terms are counted in: title, headings, body.
pub(crate) const FIELDS: usize = 3;

/// How often a term stands in each field.
pub(crate) type Counts = [u16; FIELDS];
