-- The language that a document was read in, as its code; nothing for English and for
-- what could not be told.
ALTER TABLE kb_documents ADD COLUMN language TEXT;
CREATE INDEX kb_documents_by_language ON kb_documents (source, language);
