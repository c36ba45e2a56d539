//! The files of a script: read by its engine, kept together.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::problem::{Problem, Result};

/// The text of a file of a script's folder, by its path in there. A file that
/// is missing is a Problem with the code `not_found`.
pub type ScriptFileReader = Arc<dyn Fn(&str) -> Result<String> + Send + Sync>;

/// What was read while a script loaded, so that every call runs the same
/// version whatever happens on disk, and a change of any file can be noticed.
#[derive(Clone)]
pub struct ScriptSnapshot(Arc<ScriptSnapshotInner>);

struct ScriptSnapshotInner {
    files: ScriptFileReader,
    most: usize,
    state: Mutex<ScriptSnapshotState>,
}

#[derive(Default)]
struct ScriptSnapshotState {
    read: BTreeMap<String, Result<String>>,
    loaded: bool,
}

impl ScriptSnapshot {
    /// Nothing yet, and never more than `most` files.
    pub fn new(files: ScriptFileReader, most: usize) -> ScriptSnapshot {
        ScriptSnapshot(Arc::new(ScriptSnapshotInner { files, most, state: Mutex::default() }))
    }

    /// The text of a file, the same at every call.
    pub fn read_file(&self, path: &str) -> Result<String> {
        let mut state = self.0.state.lock();
        if let Some(known) = state.read.get(path) {
            return known.clone();
        }
        if state.read.len() >= self.0.most {
            return Err(Problem::bad_script(format!(
                "the script consists of more than {} files",
                self.0.most
            )));
        }
        let text = (self.0.files)(path);
        // A file that is missing is part of what was loaded: it may appear. A
        // call, though, may ask for any number of names.
        if text.is_ok() || !state.loaded {
            state.read.insert(path.to_owned(), text.clone());
        }
        text
    }

    /// The same as a reader.
    pub fn file_reader(&self) -> ScriptFileReader {
        let snapshot = self.clone();
        Arc::new(move |path| snapshot.read_file(path))
    }

    /// A reader of what was read before, and of nothing else.
    pub fn recorded_file_reader(&self) -> ScriptFileReader {
        let snapshot = self.clone();
        Arc::new(move |path| {
            snapshot.0.state.lock().read.get(path).cloned().unwrap_or_else(|| {
                Err(Problem::bad_script(format!("{path} was not loaded with the script")))
            })
        })
    }

    /// Loading is over. Returns the texts it read, those that could not be read
    /// as empty ones.
    pub fn finish_loading(&self) -> BTreeMap<String, String> {
        let mut state = self.0.state.lock();
        state.loaded = true;
        let text = |(path, text): (&String, &Result<String>)| {
            (path.clone(), text.clone().unwrap_or_default())
        };
        state.read.iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::problem::ProblemCode;

    /// A folder with the files `a` and `b`, and how often it was read.
    fn folder() -> (ScriptFileReader, Arc<AtomicUsize>) {
        let reads = Arc::new(AtomicUsize::new(0));
        let count = reads.clone();
        let files: ScriptFileReader = Arc::new(move |path| {
            let read = count.fetch_add(1, Ordering::Relaxed);
            match path {
                "a" | "b" => Ok(format!("{path}{read}")),
                _ => Err(Problem::not_found("there is no such file")),
            }
        });
        (files, reads)
    }

    #[test]
    fn a_file_is_read_once_and_a_missing_one_stays_missing() {
        let (files, reads) = folder();
        let snapshot = ScriptSnapshot::new(files, 10);
        for _ in 0..2 {
            assert_eq!(snapshot.read_file("a"), Ok("a0".to_owned()));
            assert_eq!(
                snapshot.read_file("x").map_err(|problem| problem.code),
                Err(ProblemCode::NotFound)
            );
        }
        assert_eq!(reads.load(Ordering::Relaxed), 2);
        let texts = [("a".to_owned(), "a0".to_owned()), ("x".to_owned(), String::new())];
        assert_eq!(snapshot.finish_loading(), BTreeMap::from(texts));
    }

    #[test]
    fn after_loading_only_what_is_there_is_remembered() {
        let (files, reads) = folder();
        let snapshot = ScriptSnapshot::new(files, 2);
        snapshot.finish_loading();
        for name in ["x", "y", "z", "a", "a"] {
            let _ = snapshot.file_reader()(name);
        }
        assert_eq!(reads.load(Ordering::Relaxed), 4);
        assert_eq!(snapshot.finish_loading().len(), 1);
    }

    #[test]
    fn there_is_an_end_to_files() {
        let (files, _) = folder();
        let snapshot = ScriptSnapshot::new(files, 1);
        assert!(snapshot.read_file("a").is_ok());
        assert_eq!(
            snapshot.read_file("b").unwrap_err().message,
            "the script consists of more than 1 files"
        );
    }
}
