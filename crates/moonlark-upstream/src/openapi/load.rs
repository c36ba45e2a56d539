//! A document from a file or from the web, with all files it refers to.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use moonlark_core::limits::size;
use moonlark_core::value::shorten;
use moonlark_core::{Problem, Result};
use url::Url;

use super::answer::read_bytes;
use super::document::{Document, addresses, join, parse};
use super::exchange::OWN;
use super::tree::Tree;

/// Largest file.
const MOST: usize = 128 * 1024 * 1024;
/// Files that a document may refer to.
const MOST_FILES: usize = 500;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spec {
    File(PathBuf),
    Web(Url),
}

/// A document and the files it was read from.
pub struct Loaded {
    pub document: Document,
    /// What it consists of on disk, to notice a change of.
    pub files: Vec<PathBuf>,
}

/// Read a document. Parsing is work, so this belongs off the async threads'
/// hot path; it is done on a blocking one.
pub async fn load(spec: &Spec) -> Result<Loaded> {
    let (text, base) = match spec {
        Spec::File(path) => (read(path).await?, None),
        Spec::Web(url) => (fetch(url).await?, Some(url.clone())),
    };
    let root = parsed(text).await?;
    let mut files: HashMap<String, Tree> = HashMap::new();
    let mut paths: Vec<PathBuf> = match spec {
        Spec::File(path) => vec![path.clone()],
        Spec::Web(_) => Vec::new(),
    };
    let mut open: Vec<String> = addresses(&root).iter().map(|it| join("", it)).collect();
    while let Some(address) = open.pop() {
        if files.contains_key(&address) {
            continue;
        }
        if files.len() >= MOST_FILES {
            let message = format!("it refers to more than {MOST_FILES} files");
            return Err(Problem::bad_config(message));
        }
        // What is missing is missed only by what refers to it.
        let Ok((text, path)) = beside(spec, &address).await else { continue };
        paths.extend(path);
        let Ok(tree) = parsed(text).await else { continue };
        open.extend(addresses(&tree).iter().map(|it| join(&address, it)));
        files.insert(address, tree);
    }
    Ok(Loaded { document: Document::new(root, files, base)?, files: paths })
}

/// Another file, where it is seen from the document. A document from the web
/// gets nothing from this machine, and nothing from anywhere but its own host.
async fn beside(spec: &Spec, address: &str) -> Result<(Vec<u8>, Option<PathBuf>)> {
    match spec {
        Spec::File(path) if Url::parse(address).is_err() => {
            let folder = path.parent().unwrap_or(Path::new("."));
            let path = folder.join(address);
            Ok((read(&path).await?, Some(path)))
        }
        Spec::File(_) => {
            let url = Url::parse(address).map_err(|_| Problem::bad_config("no address"))?;
            Ok((fetch(&url).await?, None))
        }
        Spec::Web(base) => {
            let url = base.join(address).map_err(|_| Problem::bad_config("no address"))?;
            match url.origin() == base.origin() {
                true => Ok((fetch(&url).await?, None)),
                false => Err(Problem::bad_config("another host")),
            }
        }
    }
}

async fn read(path: &Path) -> Result<Vec<u8>> {
    let cannot = |why: String| {
        Problem::bad_config(format!("cannot read {}: {why}", path.display())).hint(
            "see whether it is there; a spec in moonlark.toml is seen from that file's folder",
        )
    };
    let length = tokio::fs::metadata(path).await.map_err(|error| cannot(error.to_string()))?.len();
    if length > MOST as u64 {
        return Err(cannot(format!("it is larger than {}", size(MOST))));
    }
    tokio::fs::read(path).await.map_err(|error| cannot(error.to_string()))
}

async fn fetch(url: &Url) -> Result<Vec<u8>> {
    let cannot = |why: &str| {
        let at = url.origin().ascii_serialization();
        Problem::unavailable(format!("cannot get the document from {at}: {}", shorten(why)))
    };
    let client = OWN.as_ref().map_err(Clone::clone)?;
    let request = client.get(url.clone()).timeout(PATIENCE);
    let response =
        request.send().await.map_err(|error| cannot(&error.without_url().to_string()))?;
    match response.status().is_success() {
        true => read_bytes(response, MOST).await,
        false => Err(cannot(&format!("HTTP {}", response.status()))),
    }
}

async fn parsed(text: Vec<u8>) -> Result<Tree> {
    let parsing = tokio::task::spawn_blocking(move || parse(&text));
    parsing.await.unwrap_or_else(|_| Err(Problem::internal("the document could not be read")))
}
