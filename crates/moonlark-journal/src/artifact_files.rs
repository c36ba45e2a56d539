//! Artifacts on disk: a file each, sealed with a key that is made of its handle.
//!
//! Nobody reads one without the handle, whatever else of the folder they have: the handle is
//! the right to read, and neither it nor the content is there in plain. The names of files
//! only tell which belong to one caller, so that each has its share. They are bounded by
//! bytes, by number and by age, also where several processes write.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use moonlark_core::Value;
use moonlark_core::value::Object;
use moonlark_gateway::artifacts::{
    ArchivedArtifact, ArtifactArchive, ArtifactContent, ArtifactHandle, StoredArtifact,
};
use moonlark_state::atomic_file::create_private_folder;
use parking_lot::Mutex;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{self, SHA256};

use crate::value_packing::{pack_value, unpack_value};

/// How long one is kept.
const MAX_ARTIFACT_FILE_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// How many there are at most.
const MAX_ARTIFACT_FILES: usize = 10_000;
/// The folder is looked through after so many files, or after this part of all bytes.
const FILES_PER_SCAN: usize = 64;
const BYTE_SHARES_PER_SCAN: usize = 16;
/// How files end that are being written, and how long that takes at most.
const PARTIAL_ENDING: &str = "partial";
const MAX_WRITE_TIME: Duration = Duration::from_secs(60);

pub struct ArtifactFiles {
    folder: PathBuf,
    most: AtomicUsize,
    /// What was written since the folder was looked through.
    unscanned: Mutex<UnscannedWrites>,
    written: AtomicU64,
}

#[derive(Default)]
struct UnscannedWrites {
    files: usize,
    bytes: usize,
}

struct ArtifactFile {
    path: PathBuf,
    owner: String,
    bytes: u64,
    written: SystemTime,
}

impl ArtifactFiles {
    /// Keep them in `folder`, for this user alone.
    pub fn open(folder: PathBuf) -> io::Result<ArtifactFiles> {
        create_private_folder(&folder)?;
        let files = ArtifactFiles {
            folder,
            most: AtomicUsize::new(usize::MAX),
            unscanned: Mutex::default(),
            written: AtomicU64::new(0),
        };
        files.remove_partial_files();
        Ok(files)
    }

    fn keep(&self, handle: &ArtifactHandle, artifact: &StoredArtifact) -> io::Result<()> {
        let sealed = seal_artifact(handle, artifact).ok_or(io::ErrorKind::InvalidData)?;
        let path = self.folder.join(file_name(handle, artifact.owner.as_deref()));
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let partial = self.folder.join(format!("{process}-{number}.{PARTIAL_ENDING}"));
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600).open(&partial);
        let written = made.and_then(|mut file| file.write_all(&sealed));
        if let Err(error) = written.and_then(|()| fs::rename(&partial, &path)) {
            let _ = fs::remove_file(&partial);
            return Err(error);
        }
        self.make_room_after(sealed.len(), number == 0, &path);
        Ok(())
    }

    fn load(&self, handle: &ArtifactHandle) -> Option<ArchivedArtifact> {
        let name = name_digest(handle);
        let mut entries = fs::read_dir(&self.folder).ok()?.flatten();
        let is_it = |entry: &fs::DirEntry| {
            entry.file_name().to_str().is_some_and(|file| file.starts_with(&name))
        };
        let entry = entries.find(is_it)?;
        let there = entry.metadata().ok()?;
        let is_old = there.modified().ok().is_none_or(is_too_old);
        let is_too_large = there.len() > self.most.load(Ordering::Relaxed) as u64;
        if is_old || is_too_large || !there.is_file() {
            return None;
        }
        open_artifact(handle, fs::read(entry.path()).ok()?)
    }

    /// Look whether there is too much, once enough was written; at first because of what
    /// earlier processes left.
    fn make_room_after(&self, bytes: usize, is_first: bool, newest: &Path) {
        let most = self.most.load(Ordering::Relaxed);
        let mut unscanned = self.unscanned.lock();
        unscanned.files += 1;
        unscanned.bytes = unscanned.bytes.saturating_add(bytes);
        if is_first
            || unscanned.files >= FILES_PER_SCAN
            || unscanned.bytes >= most / BYTE_SHARES_PER_SCAN
        {
            *unscanned = UnscannedWrites::default();
            self.make_room(most as u64, newest);
        }
    }

    /// Remove what is too old, and then the oldest of whoever has most until the rest fits:
    /// nobody's make room for another's.
    fn make_room(&self, most: u64, newest: &Path) {
        let (old, mut files): (Vec<_>, Vec<_>) =
            self.list_files().into_iter().partition(|file| is_too_old(file.written));
        old.iter().for_each(|file| drop(fs::remove_file(&file.path)));
        files.sort_by_key(|file| file.written);
        let mut shares: HashMap<String, (u64, usize)> = HashMap::new();
        for file in &files {
            let share = shares.entry(file.owner.clone()).or_default();
            *share = (share.0 + file.bytes, share.1 + 1);
        }
        let part = |share: &(u64, usize)| {
            let bytes = share.0 as f64 / most.max(1) as f64;
            bytes.max(share.1 as f64 / MAX_ARTIFACT_FILES as f64)
        };
        loop {
            let (bytes, count) =
                shares.values().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
            if bytes <= most && count <= MAX_ARTIFACT_FILES {
                return;
            }
            let largest = shares.iter().max_by(|a, b| part(a.1).total_cmp(&part(b.1)));
            let Some(owner) = largest.map(|(owner, _)| owner.clone()) else { return };
            let oldest = files.iter().position(|it| it.owner == owner && it.path != newest);
            let Some(oldest) = oldest.map(|index| files.remove(index)) else { return };
            let _ = fs::remove_file(&oldest.path);
            if let Some(share) = shares.get_mut(&owner) {
                *share = (share.0.saturating_sub(oldest.bytes), share.1.saturating_sub(1));
            }
        }
    }

    fn list_files(&self) -> Vec<ArtifactFile> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let file = |entry: fs::DirEntry| {
            let name = entry.file_name();
            let (_, owner) = name.to_str()?.split_once('.')?;
            let there = entry.metadata().ok()?;
            let written = there.modified().ok()?;
            let (path, bytes, owner) = (entry.path(), there.len(), owner.to_owned());
            let is_artifact = there.is_file() && owner != PARTIAL_ENDING;
            is_artifact.then_some(ArtifactFile { path, owner, bytes, written })
        };
        entries.filter_map(file).collect()
    }

    /// What processes that were killed were writing.
    fn remove_partial_files(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_partial = path.extension().is_some_and(|ending| ending == PARTIAL_ENDING);
            let written = entry.metadata().and_then(|it| it.modified()).ok();
            let age = written.and_then(|it| it.elapsed().ok()).unwrap_or_default();
            if is_partial && age > MAX_WRITE_TIME {
                let _ = fs::remove_file(path);
            }
        }
    }
}

impl ArtifactArchive for ArtifactFiles {
    fn keep_artifact(&self, handle: &ArtifactHandle, artifact: &StoredArtifact) {
        if let Err(error) = self.keep(handle, artifact) {
            tracing::warn!("an artifact will end with this process: {error}");
        }
    }

    fn load_artifact(&self, handle: &ArtifactHandle) -> Option<ArchivedArtifact> {
        self.load(handle)
    }

    fn set_max_bytes(&self, bytes: usize) {
        self.most.store(bytes, Ordering::Relaxed);
    }
}

fn is_too_old(written: SystemTime) -> bool {
    written.elapsed().is_ok_and(|age| age > MAX_ARTIFACT_FILE_AGE)
}

fn file_name(handle: &ArtifactHandle, owner: Option<&str>) -> String {
    let owner = owner.map_or_else(|| "all".to_owned(), |owner| digest_text("owner", owner));
    format!("{}.{owner}", name_digest(handle))
}

fn name_digest(handle: &ArtifactHandle) -> String {
    digest_text("name", handle.as_str())
}

/// Half of a digest, for which nobody finds another text.
fn digest_text(what: &str, text: &str) -> String {
    let digest = digest_of(what, text);
    digest.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest_of(what: &str, text: &str) -> digest::Digest {
    let mut context = digest::Context::new(&SHA256);
    context.update(b"moonlark artifact: ");
    context.update(what.as_bytes());
    context.update(b"\0");
    context.update(text.as_bytes());
    context.finish()
}

fn artifact_key(handle: &ArtifactHandle) -> Option<LessSafeKey> {
    let key = digest_of("key", handle.as_str());
    Some(LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key.as_ref()).ok()?))
}

fn seal_artifact(handle: &ArtifactHandle, artifact: &StoredArtifact) -> Option<Vec<u8>> {
    let (held, mime) = match &artifact.held {
        ArtifactContent::Value(value) => (("value", value.clone()), Value::Null),
        ArtifactContent::Bytes { bytes, mime } => {
            (("bytes", Value::Bytes(bytes.clone())), mime.as_str().into())
        }
    };
    let fields = [
        held,
        ("mime", mime),
        ("size", Value::Int(artifact.size as i64)),
        ("weight", Value::Int(artifact.weight as i64)),
        ("of", artifact.of.as_str().into()),
        ("owner", artifact.owner.as_deref().map_or(Value::Null, Value::from)),
    ];
    let mut plain = pack_value(&Value::from_fields(fields)).ok()?;
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).ok()?;
    let (key, sealing) = (artifact_key(handle)?, Nonce::assume_unique_for_key(nonce));
    key.seal_in_place_append_tag(sealing, Aad::empty(), &mut plain).ok()?;
    plain.extend_from_slice(&nonce);
    Some(plain)
}

fn open_artifact(handle: &ArtifactHandle, mut sealed: Vec<u8>) -> Option<ArchivedArtifact> {
    let at = sealed.len().checked_sub(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(&sealed[at..]).ok()?;
    sealed.truncate(at);
    let length = artifact_key(handle)?.open_in_place(nonce, Aad::empty(), &mut sealed).ok()?.len();
    sealed.truncate(length);
    let Value::Object(mut fields) = unpack_value(&sealed).ok()? else { return None };
    read_artifact(&mut fields)
}

fn read_artifact(fields: &mut Object) -> Option<ArchivedArtifact> {
    let number = |value: Option<Value>| match value {
        Some(Value::Int(number)) => usize::try_from(number).ok(),
        _ => None,
    };
    let text = |value: Option<Value>| match value {
        Some(Value::Str(text)) => Some(text),
        _ => None,
    };
    let mime = text(fields.swap_remove("mime"));
    let held = match (fields.swap_remove("value"), fields.swap_remove("bytes"), mime) {
        (Some(value), None, None) => ArtifactContent::Value(value),
        (None, Some(Value::Bytes(bytes)), Some(mime)) => ArtifactContent::Bytes { bytes, mime },
        // Bytes that are a text may come back as one.
        (None, Some(Value::Str(text)), Some(mime)) => {
            ArtifactContent::Bytes { bytes: text.into_bytes(), mime }
        }
        _ => return None,
    };
    Some(ArchivedArtifact {
        held,
        size: number(fields.swap_remove("size"))?,
        weight: number(fields.swap_remove("weight"))?,
        of: text(fields.swap_remove("of"))?,
        owner: text(fields.swap_remove("owner")).map(Arc::from),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use moonlark_core::Catalog;
    use moonlark_core::limits::CallLimits;
    use moonlark_gateway::artifacts::ArtifactSelection;
    use moonlark_gateway::gateway::CallRecords;
    use moonlark_gateway::{Caller, Gateway};
    use tokio::time::Instant;

    use super::*;

    fn artifact(content: &str, owner: Option<&str>) -> StoredArtifact {
        StoredArtifact {
            held: ArtifactContent::Value(content.into()),
            size: content.len(),
            created: Instant::now(),
            of: "execute".to_owned(),
            owner: owner.map(Arc::from),
            weight: content.len(),
        }
    }

    fn handle() -> ArtifactHandle {
        ArtifactHandle::new_random().unwrap()
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect()
    }

    fn set_age(path: &Path, age: Duration) {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    #[test]
    fn what_one_process_kept_the_next_one_loads_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("artifacts");
        let [one, two, three] = [handle(), handle(), handle()];
        let first = ArtifactFiles::open(place.clone()).unwrap();
        first.keep_artifact(&one, &artifact("hunter22", Some("ann")));
        let picture = ArtifactContent::Bytes { bytes: vec![0, 159, 146], mime: "image/png".into() };
        first.keep_artifact(&two, &StoredArtifact { held: picture, ..artifact("", None) });
        let text = ArtifactContent::Bytes { bytes: b"text".to_vec(), mime: "text/plain".into() };
        first.keep_artifact(&three, &StoredArtifact { held: text, ..artifact("", None) });
        drop(first);
        let next = ArtifactFiles::open(place.clone()).unwrap();
        let held = |handle| match next.load_artifact(handle).unwrap().held {
            ArtifactContent::Value(value) => format!("{value:?}"),
            ArtifactContent::Bytes { bytes, mime } => format!("{bytes:?} {mime}"),
        };
        assert_eq!(next.load_artifact(&one).unwrap().owner.as_deref(), Some("ann"));
        assert_eq!(held(&one), "Str(\"hunter22\")");
        assert_eq!(held(&two), "[0, 159, 146] image/png");
        assert_eq!(held(&three), "[116, 101, 120, 116] text/plain");
        assert!(next.load_artifact(&handle()).is_none());
        // Neither the handle nor the content is there for others to read.
        for path in files(&place) {
            let bytes = fs::read(&path).unwrap();
            assert!(!bytes.windows(8).any(|it| it == b"hunter22"));
            assert!(!path.to_string_lossy().contains(one.as_str()));
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(place.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        for path in files(&place) {
            let mut damaged = fs::read(&path).unwrap();
            damaged[0] ^= 1;
            fs::write(path, &damaged).unwrap();
        }
        assert!([&one, &two, &three].into_iter().all(|it| next.load_artifact(it).is_none()));
    }

    #[test]
    fn one_callers_make_no_room_for_those_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let kept = ArtifactFiles::open(folder.path().join("artifacts")).unwrap();
        kept.set_max_bytes(100_000);
        let small = handle();
        kept.keep_artifact(&small, &artifact(&"a".repeat(5_000), Some("ann")));
        set_age(&kept.folder.join(file_name(&small, Some("ann"))), Duration::from_secs(600));
        let many: Vec<ArtifactHandle> = (0..20).map(|_| handle()).collect();
        for (number, handle) in (0..).zip(&many) {
            kept.keep_artifact(handle, &artifact(&"b".repeat(20_000), Some("ben")));
            // Files that are as old as each other have no order.
            let age = Duration::from_secs(60 - number);
            set_age(&kept.folder.join(file_name(handle, Some("ben"))), age);
        }
        assert!(kept.load_artifact(&small).is_some(), "it made room for those of another");
        let left: Vec<bool> = many.iter().map(|it| kept.load_artifact(it).is_some()).collect();
        assert_eq!(left.iter().filter(|it| **it).count(), 4, "{left:?}");
        assert!(left[16..].iter().all(|it| *it), "{left:?}");
    }

    #[test]
    fn what_is_a_day_old_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let kept = ArtifactFiles::open(folder.path().join("artifacts")).unwrap();
        let old = handle();
        kept.keep_artifact(&old, &artifact("old", None));
        let path = kept.folder.join(file_name(&old, None));
        set_age(&path, MAX_ARTIFACT_FILE_AGE + Duration::from_secs(1));
        assert!(kept.load_artifact(&old).is_none());
        kept.make_room(u64::MAX, Path::new(""));
        assert!(!path.exists());
    }

    #[test]
    fn the_next_gateway_reads_what_the_one_before_put_and_only_for_its_caller() {
        let folder = tempfile::tempdir().unwrap();
        let gateway = || {
            let kept = ArtifactFiles::open(folder.path().join("artifacts")).unwrap();
            let gateway = Gateway::new(Catalog::default(), 1);
            let artifacts: Option<Arc<dyn ArtifactArchive>> = Some(Arc::new(kept));
            gateway.keep_records(CallRecords { artifacts, ..CallRecords::default() });
            gateway
        };
        let value = Value::Array(vec![Value::Int(1), Value::Null, "ü".into()]);
        let caller = Caller::new("rest").with_name("ann");
        let (of, limits) = (("execute", &caller), CallLimits::default());
        let handle = gateway().artifacts().put_value(value.clone(), of, &limits).unwrap();
        let later = gateway();
        let found = later.artifacts().find_for_caller(handle.as_str(), &caller).unwrap();
        assert_eq!(*found.read_selection(&ArtifactSelection::default()).unwrap(), value);
        let other = Caller::new("rest").with_name("ben");
        assert!(later.artifacts().find_for_caller(handle.as_str(), &other).is_err());
    }
}
