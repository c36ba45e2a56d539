//! The index: which chunks have which words, and what each chunk means.
//!
//! It consists of segments. Every commit of a sync adds one with the chunks it
//! brought; a chunk that goes is marked dead in its segment, and segments are
//! merged now and then, which leaves the dead behind. All of it is in the same
//! file and the same transaction as the documents. Inside of a segment a chunk
//! is known by its place there, its ordinal.
//!
//! It knows terms and vectors as they are handed over, not where they are from,
//! and it ranks nothing: that is [`crate::knowledge_search`].

mod index_snapshot;
mod postings;
mod segment_builder;
mod segment_members;
mod segment_merge;
mod segments;
mod term_blocks;
mod varint;
mod vectors;

pub(crate) use index_snapshot::{CurrentIndexSnapshot, IndexSnapshot, LoadedSegment};
pub(crate) use postings::{ChunkPosting, decode_postings};
pub(crate) use segment_builder::SegmentBuilder;
pub(crate) use segment_merge::{merge_after_sync, merge_during_sync};
pub(crate) use segments::SegmentTombstones;
#[cfg(test)]
pub(crate) use term_blocks::every_posting;
pub(crate) use term_blocks::{TermList, find_term_list, find_terms_with_prefix};
pub(crate) use vectors::{
    EmbeddingModel, chunks_in_segment, drop_other_models, find_chunk_vector, find_model,
    find_or_create_model, segments_without_vectors, write_vectors,
};

/// The fields that terms are counted in: title, headings, body.
pub(crate) const FIELD_COUNT: usize = 3;

/// How often a term stands in each field.
pub(crate) type TermCounts = [u16; FIELD_COUNT];
