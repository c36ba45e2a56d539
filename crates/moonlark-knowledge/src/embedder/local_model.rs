//! Models on disk: a transformer that takes the place of the model in the binary.
//!
//! A model is a folder with the three files that were added, and a fourth that says what
//! they are. Its weights are read when the first text is embedded, on a blocking thread,
//! and so is every text. Whoever no longer waits for an answer ends the work on it within
//! a layer.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, Result};
use moonlark_search::{TransformerFiles, TransformerModel};
use moonlark_state::LockFile;
use moonlark_state::atomic_file::{create_private_folder, write_private_file};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::{QuantizedVector, quantize_to_bytes};
use crate::run_blocking;

const WEIGHTS_FILE_NAME: &str = "model.safetensors";
const SHAPE_FILE_NAME: &str = "config.json";
/// The first that is there.
const VOCABULARY_FILE_NAMES: [&str; 2] = ["tokenizer.json", "vocab.txt"];
const ABOUT_FILE_NAME: &str = "moonlark.json";
/// Of the digest, in the name by which vectors are told from others'.
const DIGEST_LETTERS: usize = 16;
const MAX_MODEL_NAME_BYTES: usize = 64;
/// Held while a name is given to a model or taken from one.
const LOCK_FILE_NAME: &str = ".lock";
/// How the folder of a model begins until it has its name.
const UNNAMED_FOLDER_PREFIX: &str = ".adding-";
/// Writing a model takes far less; its process has ended.
const MAX_UNNAMED_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The folder that models are in.
#[derive(Debug, Clone)]
pub struct LocalModelFolder(PathBuf);

/// What is known of a model without reading its weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalModelInfo {
    #[serde(skip)]
    pub name: String,
    pub dimensions: usize,
    pub layers: usize,
    /// Of its files together.
    pub bytes: u64,
    digest: String,
}

/// The files of a model in memory.
struct LocalModelFiles {
    weights: Vec<u8>,
    vocabulary: (&'static str, Vec<u8>),
    shape: Vec<u8>,
}

/// A model that turns text into vectors. Cheap to clone.
#[derive(Clone)]
pub struct LocalEmbedder(Arc<LocalEmbedderInner>);

struct LocalEmbedderInner {
    folder: PathBuf,
    id: String,
    model: OnceLock<Result<TransformerModel>>,
    /// Only one reads the weights.
    loading: Mutex<()>,
    turns: Semaphore,
}

impl LocalModelFolder {
    pub fn new(folder: PathBuf) -> LocalModelFolder {
        LocalModelFolder(folder)
    }

    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Check the model at `from`, a folder or its file of weights, and keep a copy of it.
    pub fn add_model(&self, from: &Path, name: Option<&str>) -> Result<LocalModelInfo> {
        if let Err(error) = fs::metadata(from)
            && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        {
            let message = format!("there is no file or folder {}", from.display());
            return Err(Problem::bad_request(message).with_hint(FILES_HINT));
        }
        let folder = if from.is_dir() { from } else { from.parent().unwrap_or(from) };
        let own = folder.canonicalize().ok();
        let own = own.as_deref().and_then(Path::file_name).and_then(|it| it.to_str());
        let name = name.or(own).unwrap_or_default();
        check_model_name(name)?;
        if self.find_model(name).is_ok() {
            return Err(taken_name_problem(name));
        }
        let files = LocalModelFiles::read(folder, (!from.is_dir()).then_some(from))?;
        let info = files.check(name, folder)?;
        let unnamed =
            format!("{UNNAMED_FOLDER_PREFIX}{}-{}", process::id(), Uuid::new_v4().simple());
        let unnamed = self.0.join(unnamed);
        let written = create_private_folder(&self.0)
            .and_then(|()| create_private_folder(&unnamed))
            .and_then(|()| files.write(&unnamed))
            .and_then(|()| {
                let about = serde_json::to_vec_pretty(&info).map_err(io::Error::other)?;
                // Last: a model without it is none.
                write_private_file(&unnamed.join(ABOUT_FILE_NAME), about)
            })
            .and_then(|()| self.give_name(&unnamed, name));
        if !matches!(written, Ok(true)) {
            let _ = fs::remove_dir_all(&unnamed);
        }
        match written {
            Ok(true) => Ok(info),
            Ok(false) => Err(taken_name_problem(name)),
            Err(error) => {
                let target = self.0.join(name);
                Err(Problem::unavailable(format!("cannot write {}: {error}", target.display())))
            }
        }
    }

    /// Put a model that is written under its name: false where another one has it.
    fn give_name(&self, unnamed: &Path, name: &str) -> io::Result<bool> {
        let _lock = self.lock()?;
        self.remove_abandoned();
        if self.find_model(name).is_ok() {
            return Ok(false);
        }
        let target = self.0.join(name);
        // What another process was killed in the middle of.
        if let Err(error) = fs::remove_dir_all(&target)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        fs::rename(unnamed, target)?;
        Ok(true)
    }

    fn lock(&self) -> io::Result<LockFile> {
        LockFile::acquire(&self.0.join(LOCK_FILE_NAME))
    }

    /// Models that never got their names, since their processes were killed.
    fn remove_abandoned(&self) {
        let Ok(entries) = self.0.read_dir() else { return };
        for entry in entries.filter_map(io::Result::ok) {
            let is_unnamed =
                entry.file_name().to_str().is_some_and(|it| it.starts_with(UNNAMED_FOLDER_PREFIX));
            let modified = entry.metadata().and_then(|it| it.modified()).ok();
            let age = modified.and_then(|it| it.elapsed().ok());
            if is_unnamed && age.is_some_and(|it| it > MAX_UNNAMED_AGE) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// By name.
    pub fn list_models(&self) -> Vec<LocalModelInfo> {
        let Ok(entries) = self.0.read_dir() else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut found: Vec<LocalModelInfo> =
            names.filter_map(|name| self.find_model(&name).ok()).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// Gives what it was.
    pub fn remove_model(&self, name: &str) -> Result<LocalModelInfo> {
        self.find_model(name)?;
        let folder = self.0.join(name);
        let fault = |error: io::Error| {
            Problem::unavailable(format!("cannot remove {}: {error}", folder.display()))
        };
        let _lock = self.lock().map_err(fault)?;
        // Another process may have removed it meanwhile.
        let info = self.find_model(name)?;
        // First what makes it a model.
        fs::remove_file(folder.join(ABOUT_FILE_NAME))
            .and_then(|()| fs::remove_dir_all(&folder))
            .map_err(fault)?;
        Ok(info)
    }

    pub fn open_model(&self, name: &str) -> Result<LocalEmbedder> {
        let info = self.find_model(name)?;
        let digest = info.digest.get(..DIGEST_LETTERS).unwrap_or(&info.digest);
        Ok(LocalEmbedder::new(self.0.join(name), format!("{name}:{digest}")))
    }

    fn find_model(&self, name: &str) -> Result<LocalModelInfo> {
        let missing = || {
            let message = format!("there is no model {}", shorten_text(name));
            Problem::not_found(message)
                .with_hint("`moonlark model list` lists them, `moonlark model add FOLDER` adds one")
                .with_retryable(false)
        };
        check_model_name(name).map_err(|_| missing())?;
        let about = read_bounded(&self.0.join(name).join(ABOUT_FILE_NAME), 1 << 16);
        let info: LocalModelInfo =
            serde_json::from_slice(&about.map_err(|_| missing())?).map_err(|_| missing())?;
        Ok(LocalModelInfo { name: name.to_owned(), ..info })
    }
}

fn taken_name_problem(name: &str) -> Problem {
    Problem::bad_request(format!("there is a model {name} already")).with_hint(format!(
        "`moonlark model remove {name}` removes it, `--name` gives this one another name"
    ))
}

/// Names are folders.
fn check_model_name(name: &str) -> Result<()> {
    let fits = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    let is_name = (1..=MAX_MODEL_NAME_BYTES).contains(&name.len())
        && name.chars().all(fits)
        && !name.starts_with('.')
        && name != "builtin";
    if is_name {
        return Ok(());
    }
    let message = format!("{} is no name for a model", shorten_text(name));
    Err(Problem::bad_request(message)
        .with_hint("use `--name` with letters, digits, - _ and .; \"builtin\" is taken"))
}

impl LocalModelFiles {
    /// From a folder, or with weights of another name in it.
    fn read(folder: &Path, weights: Option<&Path>) -> Result<LocalModelFiles> {
        let other = TransformerModel::MAX_OTHER_BYTES;
        let vocabulary = VOCABULARY_FILE_NAMES.into_iter().find(|it| folder.join(it).exists());
        let Some(vocabulary) = vocabulary else {
            let message =
                format!("there is no tokenizer.json or vocab.txt in {}", folder.display());
            return Err(Problem::bad_request(message).with_hint(FILES_HINT));
        };
        let weights = weights.map_or_else(|| folder.join(WEIGHTS_FILE_NAME), Path::to_owned);
        Ok(LocalModelFiles {
            shape: read_bounded(&folder.join(SHAPE_FILE_NAME), other)?,
            vocabulary: (vocabulary, read_bounded(&folder.join(vocabulary), other)?),
            weights: read_bounded(&weights, TransformerModel::MAX_WEIGHTS_BYTES)?,
        })
    }

    fn parse(&self, folder: &Path) -> Result<TransformerModel> {
        let LocalModelFiles { weights, vocabulary: (_, vocabulary), shape } = self;
        TransformerModel::parse(TransformerFiles { weights, vocabulary, shape }).map_err(|fault| {
            let message = format!("the model in {} cannot be used: {fault}", folder.display());
            Problem::bad_request(message).with_hint(FILES_HINT)
        })
    }

    fn check(&self, name: &str, folder: &Path) -> Result<LocalModelInfo> {
        let model = self.parse(folder)?;
        let mut digest = Sha256::new();
        let all = [&self.weights, &self.vocabulary.1, &self.shape];
        for part in all {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Ok(LocalModelInfo {
            name: name.to_owned(),
            dimensions: model.dimensions(),
            layers: model.layers(),
            bytes: all.iter().map(|it| it.len() as u64).sum(),
            digest: digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    fn write(&self, folder: &Path) -> io::Result<()> {
        write_private_file(&folder.join(SHAPE_FILE_NAME), &self.shape)?;
        write_private_file(&folder.join(self.vocabulary.0), &self.vocabulary.1)?;
        write_private_file(&folder.join(WEIGHTS_FILE_NAME), &self.weights)
    }
}

const FILES_HINT: &str = "a model is a folder with model.safetensors, config.json, and tokenizer.json or vocab.txt, of the BERT family, such as all-MiniLM-L6-v2";

/// A file, if it is one and not larger than that.
fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>> {
    let fault = |said: String| {
        Problem::bad_request(format!("cannot read {}: {said}", path.display()))
            .with_hint(FILES_HINT)
    };
    let about = fs::metadata(path).map_err(|error| fault(error.to_string()))?;
    if !about.is_file() {
        return Err(fault("it is no file".to_owned()));
    }
    let too_large = || fault(format!("it has more than {} MB", most >> 20));
    if about.len() > most {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(about.len()).unwrap_or(0));
    let mut file = File::open(path).map_err(|error| fault(error.to_string()))?.take(most + 1);
    file.read_to_end(&mut bytes).map_err(|error| fault(error.to_string()))?;
    if bytes.len() as u64 > most { Err(too_large()) } else { Ok(bytes) }
}

impl LocalEmbedder {
    fn new(folder: PathBuf, id: String) -> LocalEmbedder {
        let turns = Semaphore::new(thread::available_parallelism().map_or(1, usize::from));
        let (model, loading) = (OnceLock::new(), Mutex::new(()));
        LocalEmbedder(Arc::new(LocalEmbedderInner { folder, id, model, loading, turns }))
    }

    /// What tells its vectors from others'.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Dropping the future ends the work.
    pub(crate) async fn embed_texts(&self, texts: Vec<String>) -> Result<Vec<QuantizedVector>> {
        let _turn = self.0.turns.acquire().await;
        let cancelled = CancelOnDrop::default();
        let (inner, flag) = (self.0.clone(), cancelled.0.clone());
        run_blocking(move || {
            let rows = inner.embed_all(&texts, &|| flag.load(Ordering::Relaxed))?;
            rows.ok_or_else(|| Problem::internal("nobody waits for these vectors any more"))
        })
        .await
    }
}

/// Says so when nobody waits any more.
#[derive(Default)]
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl LocalEmbedderInner {
    fn model(&self) -> Result<&TransformerModel> {
        if self.model.get().is_none() {
            let _alone = self.loading.lock();
            self.model
                .get_or_init(|| LocalModelFiles::read(&self.folder, None)?.parse(&self.folder));
        }
        match self.model.get() {
            Some(Ok(model)) => Ok(model),
            Some(Err(problem)) => Err(problem.clone()),
            None => Err(Problem::internal("the model was not read")),
        }
    }

    /// One thread for a question; for many texts all cores but one, which answers others.
    fn embed_all(
        &self,
        texts: &[String],
        is_cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Vec<QuantizedVector>>> {
        let model = self.model()?;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = (cores.saturating_sub(1)).clamp(1, texts.len().max(1));
        let next = AtomicUsize::new(0);
        let work = || {
            let mut made = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(text) = texts.get(number) else { return Some(made) };
                made.push((number, quantize_to_bytes(&model.embed(text, is_cancelled)?)));
            }
        };
        let parts: Option<Vec<Vec<(usize, QuantizedVector)>>> = thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let own = work();
            let others = others.into_iter().map(|it| it.join().ok().flatten());
            std::iter::once(own).chain(others).collect()
        });
        let Some(parts) = parts else { return Ok(None) };
        let mut rows: Vec<(usize, QuantizedVector)> = parts.into_iter().flatten().collect();
        rows.sort_by_key(|(number, _)| *number);
        Ok(Some(rows.into_iter().map(|(_, row)| row).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY_MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/knowledge/model");

    #[tokio::test]
    async fn a_model_that_was_added_gives_vectors_in_the_order_of_the_texts() {
        let folder = tempfile::tempdir().unwrap();
        let models = LocalModelFolder::new(folder.path().join("models"));
        assert_eq!(models.list_models(), []);
        let info = models.add_model(Path::new(TINY_MODEL), Some("tiny")).unwrap();
        assert_eq!((info.name.as_str(), info.dimensions, info.layers), ("tiny", 16, 2));
        assert_eq!(models.list_models(), std::slice::from_ref(&info));
        let embedder = models.open_model("tiny").unwrap();
        let texts = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let rows = embedder.embed_texts(texts(&["holiday", "release", "vacation"])).await.unwrap();
        let again = embedder.embed_texts(texts(&["vacation"])).await.unwrap();
        assert_eq!(rows[2], again[0]);
        let near = |a: &QuantizedVector, b: &QuantizedVector| {
            let signed = |it: &QuantizedVector| it.iter().map(|it| *it as i8).collect::<Vec<_>>();
            moonlark_search::cosine_similarity(&signed(a), &signed(b))
        };
        assert!(near(&rows[0], &rows[2]) > near(&rows[0], &rows[1]) + 0.3);
        assert_eq!(models.remove_model("tiny").unwrap(), info);
        assert_eq!(models.list_models(), []);
        assert!(!folder.path().join("models/tiny").exists());
    }

    #[test]
    fn what_is_no_model_is_not_added_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let models = LocalModelFolder::new(folder.path().join("models"));
        let from = folder.path().join("from");
        fs::create_dir(&from).unwrap();
        let message = |name: Option<&str>| models.add_model(&from, name).unwrap_err().message;
        assert!(message(None).starts_with("there is no tokenizer.json or vocab.txt in "));
        for name in ["../up", "", "builtin", ".hidden", "a/b", &"x".repeat(65)] {
            assert!(message(Some(name)).ends_with(" is no name for a model"), "{name}");
        }
        for name in ["vocab.txt", "config.json", "model.safetensors"] {
            fs::copy(Path::new(TINY_MODEL).join(name), from.join(name)).unwrap();
        }
        let weights = from.join("model.safetensors");
        let bytes = fs::read(&weights).unwrap();
        write_private_file(&weights, &bytes[..bytes.len() / 2]).unwrap();
        assert!(message(None).contains(" cannot be used: the weights: "));
        fs::remove_file(&weights).unwrap();
        fs::create_dir(&weights).unwrap();
        assert!(message(None).ends_with("it is no file"));
        assert!(!folder.path().join("models").exists());
        fs::remove_dir(&weights).unwrap();
        write_private_file(&weights, &bytes).unwrap();
        // Half of it is there, as when a process was killed.
        fs::create_dir_all(folder.path().join("models/from/half")).unwrap();
        // By its file as well as by its folder.
        models.add_model(&weights, None).unwrap();
        assert_eq!(message(None), "there is a model from already");
        assert!(!folder.path().join("models/from/half").exists());
        assert!(models.open_model("none").is_err());
        assert!(models.remove_model("../models").is_err());
    }

    #[test]
    fn of_many_who_add_a_model_under_one_name_one_succeeds() {
        const ADDERS: usize = 8;
        let folder = tempfile::tempdir().unwrap();
        let models = LocalModelFolder::new(folder.path().join("models"));
        let start = std::sync::Barrier::new(ADDERS);
        let add = || {
            start.wait();
            models.add_model(Path::new(TINY_MODEL), Some("tiny")).map_err(|it| it.message)
        };
        let outcomes: Vec<_> = thread::scope(|scope| {
            let adders: Vec<_> = (0..ADDERS).map(|_| scope.spawn(add)).collect();
            adders.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let taken = Err("there is a model tiny already".to_owned());
        assert_eq!(outcomes.iter().filter(|it| it.is_ok()).count(), 1, "{outcomes:?}");
        assert!(outcomes.iter().all(|it| it.is_ok() || *it == taken), "{outcomes:?}");
        assert_eq!(models.list_models().len(), 1);
        assert!(LocalModelFiles::read(&models.folder().join("tiny"), None).is_ok());
        let names = models.folder().read_dir().unwrap().map(|it| it.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, [".lock", "tiny"]);
    }

    #[test]
    fn a_path_that_leads_nowhere_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let models = LocalModelFolder::new(folder.path().join("models"));
        let nowhere = folder.path().join("nope");
        for path in [nowhere.as_path(), Path::new("/nope")] {
            let problem = models.add_model(path, None).unwrap_err();
            assert_eq!(problem.message, format!("there is no file or folder {}", path.display()));
        }
    }

    #[tokio::test]
    async fn a_model_that_was_damaged_says_so_when_it_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let models = LocalModelFolder::new(folder.path().to_owned());
        models.add_model(Path::new(TINY_MODEL), Some("tiny")).unwrap();
        let embedder = models.open_model("tiny").unwrap();
        write_private_file(&folder.path().join("tiny/model.safetensors"), b"nothing").unwrap();
        let problem = embedder.embed_texts(vec!["a".to_owned()]).await.unwrap_err();
        assert!(
            problem.message.ends_with("the weights are no safetensors: too short"),
            "{problem:?}"
        );
    }

    #[test]
    fn what_nobody_waits_for_is_not_computed() {
        let embedder = LocalEmbedder::new(PathBuf::from(TINY_MODEL), "tiny".to_owned());
        let texts = vec!["holiday".to_owned(); 1_000];
        assert_eq!(embedder.0.embed_all(&texts, &|| true).unwrap(), None);
    }
}
