//! Format detection: by declared type, name and first bytes. The bytes win where they are
//! unmistakable.

use crate::source_connector::SourceItem;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DocumentFormat {
    Plain,
    Markdown,
    Html,
    /// Source code, and data that people write: JSON, YAML, TOML, XML.
    Code,
    /// A record per line.
    Rows,
    Pdf,
    Docx,
}

/// Of text: what was said, then the name.
pub(super) fn detect_text_format(item: &SourceItem) -> DocumentFormat {
    let said = item.content_type.as_deref().and_then(format_from_media_type);
    said.or_else(|| format_from_name(&item.source_id))
        .filter(|it| !matches!(it, DocumentFormat::Pdf | DocumentFormat::Docx))
        .unwrap_or(DocumentFormat::Plain)
}

/// Of bytes; an error says what they are instead.
pub(super) fn detect_bytes_format(
    item: &SourceItem,
    bytes: &[u8],
) -> Result<DocumentFormat, String> {
    let said = item.content_type.as_deref().and_then(format_from_media_type);
    // Some programs put a few bytes before it.
    if memchr::memmem::find(&bytes[..bytes.len().min(1024)], b"%PDF-").is_some()
        && (bytes.starts_with(b"%PDF-")
            || said == Some(DocumentFormat::Pdf)
            || file_extension(&item.source_id) == "pdf")
    {
        return Ok(DocumentFormat::Pdf);
    }
    if bytes.starts_with(b"PK\x03\x04") {
        return match memchr::memmem::find(bytes, b"word/document.xml") {
            Some(_) => Ok(DocumentFormat::Docx),
            None => Err(describe_archive(&file_extension(&item.source_id)).to_owned()),
        };
    }
    if let Some((_, what)) = FILE_SIGNATURES.iter().find(|(sign, _)| bytes.starts_with(sign)) {
        return Err((*what).to_owned());
    }
    let format =
        said.or_else(|| format_from_name(&item.source_id)).unwrap_or(DocumentFormat::Plain);
    match format {
        DocumentFormat::Pdf => Err("it is named as a PDF and is none".to_owned()),
        DocumentFormat::Docx => Err("it is named as a Word document and is none".to_owned()),
        text => Ok(text),
    }
}

const FILE_SIGNATURES: &[(&[u8], &str)] = &[
    (b"\x89PNG\r\n\x1a\n", "it is an image"),
    (b"\xff\xd8\xff", "it is an image"),
    (b"GIF8", "it is an image"),
    (b"RIFF", "it is an image, sound or video"),
    (b"ID3", "it is a sound"),
    (b"OggS", "it is a sound or video"),
    (b"fLaC", "it is a sound"),
    (b"\x1f\x8b", "it is compressed"),
    (b"BZh", "it is compressed"),
    (b"\xfd7zXZ\0", "it is compressed"),
    (b"\x28\xb5\x2f\xfd", "it is compressed"),
    (b"7z\xbc\xaf\x27\x1c", "it is an archive"),
    (b"Rar!\x1a\x07", "it is an archive"),
    (b"PK\x05\x06", "it is an archive"),
    (b"\x7fELF", "it is a program"),
    (b"MZ\x90\0", "it is a program"),
    (b"\xcf\xfa\xed\xfe", "it is a program"),
    (b"\0asm", "it is a program"),
    (b"SQLite format 3\0", "it is a database"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "it is in an old format of Microsoft Office"),
    (b"wOF2", "it is a font"),
    (b"wOFF", "it is a font"),
];

fn describe_archive(extension: &str) -> &'static str {
    match extension {
        "xlsx" | "ods" => "it is a spreadsheet",
        "pptx" | "odp" => "it is a presentation",
        "odt" => "it is in a format of OpenOffice",
        "epub" => "it is an e-book",
        "jar" | "war" => "it is a program",
        "docx" => "it is named as a Word document and is none",
        _ => "it is an archive",
    }
}

const DOCX_MEDIA_TYPE: &str =
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document";

fn format_from_media_type(said: &str) -> Option<DocumentFormat> {
    let media = said.split(';').next().unwrap_or(said).trim().to_ascii_lowercase();
    Some(match media.as_str() {
        "text/markdown" | "text/x-markdown" | "text/md" => DocumentFormat::Markdown,
        "text/html" | "application/xhtml+xml" => DocumentFormat::Html,
        "text/csv" | "text/tab-separated-values" => DocumentFormat::Rows,
        "application/pdf" => DocumentFormat::Pdf,
        DOCX_MEDIA_TYPE => DocumentFormat::Docx,
        "application/json"
        | "application/yaml"
        | "application/toml"
        | "application/xml"
        | "text/xml"
        | "text/yaml"
        | "text/javascript"
        | "application/javascript" => DocumentFormat::Code,
        other if other.starts_with("text/x-") => DocumentFormat::Code,
        // Often said of anything; the name may know better.
        _ => return None,
    })
}

fn format_from_name(source_id: &str) -> Option<DocumentFormat> {
    Some(match file_extension(source_id).as_str() {
        "md" | "markdown" | "mdx" | "mdown" | "mkd" | "qmd" | "rmd" | "rst" => {
            DocumentFormat::Markdown
        }
        "html" | "htm" | "xhtml" => DocumentFormat::Html,
        "csv" | "tsv" => DocumentFormat::Rows,
        "txt" | "text" | "log" | "adoc" | "org" | "tex" => DocumentFormat::Plain,
        "pdf" => DocumentFormat::Pdf,
        "docx" => DocumentFormat::Docx,
        _ => return language_from_name(source_id).map(|_| DocumentFormat::Code),
    })
}

pub(super) fn media_type(item: &SourceItem, format: DocumentFormat) -> String {
    if let Some(said) = &item.content_type {
        return said.clone();
    }
    let known = match format {
        DocumentFormat::Plain => "text/plain",
        DocumentFormat::Markdown => "text/markdown",
        DocumentFormat::Html => "text/html",
        DocumentFormat::Rows if file_extension(&item.source_id) == "tsv" => {
            "text/tab-separated-values"
        }
        DocumentFormat::Rows => "text/csv",
        DocumentFormat::Pdf => "application/pdf",
        DocumentFormat::Docx => DOCX_MEDIA_TYPE,
        DocumentFormat::Code => match language_from_name(&item.source_id) {
            Some(data @ ("json" | "yaml" | "toml" | "xml")) => {
                return format!("application/{data}");
            }
            Some(language) => return format!("text/x-{language}"),
            None => "text/plain",
        },
    };
    known.to_owned()
}

pub(super) fn language_from_name(source_id: &str) -> Option<&'static str> {
    let name = source_id.rsplit('/').next().unwrap_or(source_id);
    Some(match name {
        "Makefile" | "makefile" | "GNUmakefile" => "makefile",
        "Dockerfile" | "Containerfile" => "dockerfile",
        "CMakeLists.txt" => "cmake",
        "Justfile" | "justfile" => "just",
        "Jenkinsfile" => "groovy",
        "Gemfile" | "Rakefile" => "ruby",
        _ => return language_from_extension(&file_extension(name)),
    })
}

fn language_from_extension(extension: &str) -> Option<&'static str> {
    Some(match extension {
        "rs" => "rust",
        "py" | "pyi" | "pyw" => "python",
        "js" | "mjs" | "cjs" | "jsx" => "javascript",
        "ts" | "tsx" | "mts" | "cts" => "typescript",
        "go" => "go",
        "java" => "java",
        "kt" | "kts" => "kotlin",
        "scala" | "sc" => "scala",
        "swift" => "swift",
        "c" | "h" => "c",
        "cc" | "cpp" | "cxx" | "hh" | "hpp" | "hxx" => "cpp",
        "cs" => "csharp",
        "fs" | "fsx" => "fsharp",
        "m" | "mm" => "objective-c",
        "rb" => "ruby",
        "php" => "php",
        "pl" | "pm" => "perl",
        "lua" => "lua",
        "luau" => "luau",
        "star" | "bzl" | "bazel" => "starlark",
        "sh" | "bash" | "zsh" | "fish" => "shell",
        "ps1" | "psm1" => "powershell",
        "sql" => "sql",
        "r" => "r",
        "jl" => "julia",
        "ex" | "exs" => "elixir",
        "erl" | "hrl" => "erlang",
        "hs" => "haskell",
        "ml" | "mli" => "ocaml",
        "clj" | "cljs" | "edn" => "clojure",
        "el" | "lisp" | "scm" => "lisp",
        "dart" => "dart",
        "zig" => "zig",
        "nim" => "nim",
        "groovy" | "gradle" => "groovy",
        "vue" => "vue",
        "svelte" => "svelte",
        "css" | "scss" | "sass" | "less" => "css",
        "proto" => "protobuf",
        "graphql" | "gql" => "graphql",
        "tf" | "hcl" => "hcl",
        "nix" => "nix",
        "cmake" => "cmake",
        "json" | "jsonl" | "ndjson" | "json5" | "jsonc" => "json",
        "yaml" | "yml" => "yaml",
        "toml" => "toml",
        "xml" | "xsd" | "xsl" | "svg" | "plist" => "xml",
        "ini" | "cfg" | "conf" | "properties" | "env" => "ini",
        _ => return None,
    })
}

/// In lower case; empty where there is none.
pub(crate) fn file_extension(source_id: &str) -> String {
    let name = source_id.rsplit('/').next().unwrap_or(source_id);
    match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() && extension.len() <= 12 => {
            extension.to_ascii_lowercase()
        }
        _ => String::new(),
    }
}
