-- The knowledge base. A document is what a source has under one name; its text
-- is in kb_bodies once, and its chunks are stretches of it. Chunk numbers only
-- grow: a changed document gets new ones, and the old ones die in their segment.

CREATE TABLE kb_meta (key TEXT NOT NULL PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
-- `file` tells this file from another one in its place.
INSERT INTO kb_meta VALUES
    ('file', random()), ('generation', 0), ('next_chunk', 0), ('made_by', '');

CREATE TABLE kb_sources (
    source INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    -- What the last scan that ended well left for the next, as JSON.
    state TEXT,
    last_sync INTEGER,
    problem TEXT
) STRICT;

-- Times are microseconds since 1970.
CREATE TABLE kb_documents (
    document INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    source INTEGER NOT NULL,
    source_id TEXT NOT NULL,
    title TEXT NOT NULL,
    source_url TEXT,
    author TEXT,
    created_at INTEGER,
    updated_at INTEGER,
    content_type TEXT,
    metadata TEXT,
    stamp TEXT,
    -- Of the content and whatever else decides the chunks.
    hash BLOB NOT NULL,
    first_chunk INTEGER NOT NULL,
    chunks INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX kb_documents_named ON kb_documents (source, source_id);
CREATE INDEX kb_documents_filtered ON kb_documents (source, updated_at, chunks);
CREATE INDEX kb_documents_alike ON kb_documents (hash);

-- The text of a document, in pieces, so that a chunk of a long one is near.
CREATE TABLE kb_bodies (
    piece INTEGER PRIMARY KEY,
    document INTEGER NOT NULL,
    number INTEGER NOT NULL,
    -- Which byte of the text it begins with.
    start INTEGER NOT NULL,
    text TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX kb_bodies_in_order ON kb_bodies (document, number);

-- Start and length are bytes of the body.
CREATE TABLE kb_chunks (
    chunk INTEGER PRIMARY KEY,
    document INTEGER NOT NULL,
    heading TEXT,
    start INTEGER NOT NULL,
    length INTEGER NOT NULL
) STRICT;

-- The fields of documents' metadata, for filters.
CREATE TABLE kb_fields (
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    document INTEGER NOT NULL,
    PRIMARY KEY (key, value, document)
) STRICT, WITHOUT ROWID;
CREATE INDEX kb_fields_of ON kb_fields (document);

-- What is there and no text, so that it is not read again and again.
CREATE TABLE kb_skips (
    skip INTEGER PRIMARY KEY,
    source INTEGER NOT NULL,
    source_id TEXT NOT NULL,
    stamp TEXT,
    reason TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX kb_skips_named ON kb_skips (source, source_id);

-- A part of the index: chunks in the order of their numbers, all between two
-- numbers, and which of them are still alive.
CREATE TABLE kb_segments (
    segment INTEGER PRIMARY KEY AUTOINCREMENT,
    first_chunk INTEGER NOT NULL,
    chunks INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    alive BLOB NOT NULL,
    members BLOB NOT NULL
) STRICT;
CREATE INDEX kb_segments_in_order ON kb_segments (first_chunk);

-- The terms of a segment with where they stand, some in one row.
CREATE TABLE kb_terms (
    block INTEGER PRIMARY KEY,
    segment INTEGER NOT NULL,
    first BLOB NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE INDEX kb_terms_in_order ON kb_terms (segment, first);

CREATE TABLE kb_models (
    model INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    -- Bytes of a row.
    dimensions INTEGER NOT NULL
) STRICT;

-- One row of bytes for each chunk of the segment.
CREATE TABLE kb_vectors (
    segment INTEGER NOT NULL,
    model INTEGER NOT NULL,
    vectors BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX kb_vectors_of ON kb_vectors (segment, model);
