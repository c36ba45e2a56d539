//! A document from a file or from the web, with all files it refers to.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use moonlark_core::limits::format_size;
use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, ProblemCode, Result};
use reqwest::Client;
use url::Url;

use crate::api_exchange::{API_HTTP_CLIENT, PUBLIC_HTTP_CLIENT, is_public_target};
use crate::api_response::read_bytes;
use crate::document_tree::DocumentTree;
use crate::openapi_document::{
    OpenApiDocument, join_address, parse_document, referenced_addresses,
};

/// Largest file.
const MAX_DOCUMENT_FILE_BYTES: usize = 128 * 1024 * 1024;
/// Files that a document may refer to.
const MAX_REFERENCED_FILES: usize = 500;
/// The document and all files it refers to.
const MAX_DOCUMENT_TOTAL_BYTES: usize = 256 * 1024 * 1024;
/// References that cannot be read and are told of one by one.
const MAX_REF_PROBLEMS: usize = 10;
const DOCUMENT_FETCH_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecLocation {
    File(PathBuf),
    Web(Url),
}

/// What a document may refer to, beside the files in its own folder, the files of
/// its own host, and public addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefPermission {
    /// A file, or all files in a folder.
    Path(PathBuf),
    /// Everything at an origin.
    Origin(String),
}

impl RefPermission {
    /// A path, seen from `root`, or an address.
    pub fn parse(text: &str, root: &Path) -> RefPermission {
        match Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => {
                RefPermission::Origin(url.origin().ascii_serialization())
            }
            _ => RefPermission::Path(root.join(text)),
        }
    }
}

/// A document and the files it was read from.
pub struct LoadedOpenApiDocument {
    pub document: OpenApiDocument,
    /// What it consists of on disk, to notice a change of.
    pub files: Vec<PathBuf>,
    /// What it refers to that was not read.
    pub problems: Vec<Problem>,
}

/// Read a document. Parsing is work, so this belongs off the async threads'
/// hot path; it is done on a blocking one.
pub async fn load_document(
    spec: &SpecLocation,
    permitted: &[RefPermission],
) -> Result<LoadedOpenApiDocument> {
    let (text, base, mut paths) = match spec {
        SpecLocation::File(path) => (read_document_file(path).await?, None, vec![path.clone()]),
        SpecLocation::Web(url) => {
            (fetch_document(url, &API_HTTP_CLIENT).await?, Some(url.clone()), Vec::new())
        }
    };
    let mut left = MAX_DOCUMENT_TOTAL_BYTES.saturating_sub(text.len());
    let root = run_blocking(move || parse_document(&text)).await?;
    let mut files: HashMap<String, DocumentTree> = HashMap::new();
    let mut problems: Vec<Problem> = Vec::new();
    let mut looked_for: HashSet<String> = HashSet::new();
    let mut open: Vec<String> =
        referenced_addresses(&root).iter().map(|it| join_address("", it)).collect();
    while let Some(address) = open.pop() {
        if !looked_for.insert(address.clone()) {
            continue;
        }
        if files.len() >= MAX_REFERENCED_FILES {
            let message = format!("it refers to more than {MAX_REFERENCED_FILES} files");
            return Err(Problem::bad_config(message));
        }
        // What is missing is missed only by what refers to it.
        let (text, path) = match load_referenced_file(spec, &address, permitted).await {
            Ok(found) => found,
            Err(problem) => {
                if problem.code == ProblemCode::Denied && problems.len() < MAX_REF_PROBLEMS {
                    let why = problem.message.clone();
                    let said = format!("$ref to {} is not read: {why}", shorten_text(&address));
                    problems.push(problem.with_message(said));
                }
                continue;
            }
        };
        left = left.checked_sub(text.len()).ok_or_else(|| {
            let most = format_size(MAX_DOCUMENT_TOTAL_BYTES);
            Problem::bad_config(format!("it and the files it refers to are larger than {most}"))
        })?;
        paths.extend(path);
        let Ok(tree) = run_blocking(move || parse_document(&text)).await else { continue };
        open.extend(referenced_addresses(&tree).iter().map(|it| join_address(&address, it)));
        files.insert(address, tree);
    }
    Ok(LoadedOpenApiDocument {
        document: OpenApiDocument::new(root, files, base)?,
        files: paths,
        problems,
    })
}

/// Another file, where it is seen from the document. A document from the web
/// gets nothing from this machine, and nothing from anywhere but its own host. A
/// local one gets the files of its folder, and what any script may get of the web.
async fn load_referenced_file(
    spec: &SpecLocation,
    address: &str,
    permitted: &[RefPermission],
) -> Result<(Vec<u8>, Option<PathBuf>)> {
    let url = match (spec, Url::parse(address)) {
        (SpecLocation::File(path), Err(_)) => {
            let folder = path.parent().unwrap_or(Path::new("."));
            let path = resolve_confined_path(folder, address, permitted)?;
            return Ok((read_document_file(&path).await?, Some(path)));
        }
        (SpecLocation::File(_), Ok(url)) => url,
        (SpecLocation::Web(base), _) => {
            base.join(address).map_err(|_| Problem::bad_config("it is no address"))?
        }
    };
    let origin = url.origin().ascii_serialization();
    let is_web = matches!(url.scheme(), "http" | "https");
    let denied = |why: &str| {
        Problem::denied(format!("{origin} is {why}"))
            .with_hint(format!("if it may be read, add \"{origin}\" to refs of this API"))
    };
    let client = match spec {
        _ if permitted.contains(&RefPermission::Origin(origin.clone())) => &API_HTTP_CLIENT,
        SpecLocation::Web(base) if base.origin() == url.origin() => &API_HTTP_CLIENT,
        SpecLocation::Web(_) => return Err(denied("another host than that of the document")),
        SpecLocation::File(_) if is_web && is_public_target(&url) => &PUBLIC_HTTP_CLIENT,
        SpecLocation::File(_) => return Err(denied("no public address")),
    };
    Ok((fetch_document(&url, client).await?, None))
}

/// The file that a local document refers to, if that is in its own folder.
fn resolve_confined_path(
    folder: &Path,
    address: &str,
    permitted: &[RefPermission],
) -> Result<PathBuf> {
    let path = folder.join(address);
    let missing = |error: std::io::Error| Problem::bad_config(format!("{}", error.kind()));
    // Links are followed first: it is the file that counts.
    let real = path.canonicalize().map_err(missing)?;
    let is_inside =
        |folder: &Path| folder.canonicalize().is_ok_and(|folder| real.starts_with(folder));
    let granted = permitted.iter().any(|it| match it {
        RefPermission::Path(path) => is_inside(path),
        RefPermission::Origin(_) => false,
    });
    if granted || is_inside(folder) {
        return Ok(path);
    }
    Err(Problem::denied("it is outside the folder of the document")
        .with_hint("if it may be read, add its folder to refs of this API"))
}

/// A regular file: not a device or a pipe, which may never end.
async fn read_document_file(path: &Path) -> Result<Vec<u8>> {
    let shown = path.display().to_string();
    let cannot = move |why: String| {
        Problem::bad_config(format!("cannot read {shown}: {why}")).with_hint(
            "see whether it is there; a spec in moonlark.toml is seen from that file's folder",
        )
    };
    let path = path.to_owned();
    run_blocking(move || read_regular_file(&path).map_err(cannot)).await
}

fn read_regular_file(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let words = |error: std::io::Error| error.to_string();
    let is_regular = |it: std::fs::Metadata| it.is_file();
    if !std::fs::metadata(path).map(is_regular).map_err(words)? {
        return Err("it is not a regular file".to_owned());
    }
    // What it was a moment ago is not what is opened: a pipe must not make us wait.
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(words)?;
    if !file.metadata().map(is_regular).map_err(words)? {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(MAX_DOCUMENT_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(words)?;
    if bytes.len() > MAX_DOCUMENT_FILE_BYTES {
        return Err(format!("it is larger than {}", format_size(MAX_DOCUMENT_FILE_BYTES)));
    }
    Ok(bytes)
}

async fn fetch_document(url: &Url, client: &LazyLock<Result<Client>>) -> Result<Vec<u8>> {
    let cannot = |why: &str| {
        let at = url.origin().ascii_serialization();
        Problem::unavailable(format!("cannot get the document from {at}: {}", shorten_text(why)))
    };
    let client = client.as_ref().map_err(Clone::clone)?;
    let request = client.get(url.clone()).timeout(DOCUMENT_FETCH_TIMEOUT);
    let response =
        request.send().await.map_err(|error| cannot(&error.without_url().to_string()))?;
    if response.status().is_success() {
        read_bytes(response, MAX_DOCUMENT_FILE_BYTES).await
    } else {
        Err(cannot(&format!("HTTP {}", response.status())))
    }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let working = tokio::task::spawn_blocking(work);
    working.await.unwrap_or_else(|_| Err(Problem::internal("the document could not be read")))
}

#[cfg(test)]
mod tests;
