//! The log step by step: what one caller does while another one is in the middle.

use moonlark_core::Value;
use moonlark_core::record_id::RecordId;

use super::*;
use crate::process_lock::ProcessLock;
use crate::tests::{call_began, trimmed};

struct TestLog {
    folder: tempfile::TempDir,
    log: EntryLog,
    _process: ProcessLock,
}

impl TestLog {
    fn open() -> TestLog {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal.db");
        let process = ProcessLock::acquire(&file).unwrap();
        let log = EntryLog::default();
        log.open(&file, &process.lock, Arc::new(JournalSeal::load_beside(&file).unwrap())).unwrap();
        TestLog { folder, log, _process: process }
    }

    /// What whoever comes after this process finds, file by file.
    fn written(&self) -> Vec<Vec<JournalEntry>> {
        let file = self.folder.path().join("journal.db");
        let seal = JournalSeal::load_beside(&file).unwrap();
        let logs = std::fs::read_dir(logs_folder(&file)).unwrap();
        let mut logs: Vec<PathBuf> = logs.map(|log| log.unwrap().path()).collect();
        logs.sort();
        let read = |path| read_log(&std::fs::read(path).unwrap(), &seal).entries;
        logs.into_iter().map(|log| read(log).into_iter().map(|it| it.0).collect()).collect()
    }

    fn append(&self, entry: &JournalEntry) {
        self.log.append_entry(entry, None).unwrap();
        self.log.sync_to(self.log.write_out().unwrap()).unwrap();
    }
}

/// A call with as many bytes of arguments.
fn call(bytes: usize) -> JournalEntry {
    let mut call = call_began(Some(RecordId::new()), Some("1"), Value::from("x".repeat(bytes)));
    call.at = trimmed(call.at);
    JournalEntry::CallBegan(call)
}

fn encoded(entry: &JournalEntry) -> Vec<u8> {
    let mut bytes = vec![0; ENTRY_HEAD_BYTES];
    encode_entry(entry, None, &mut bytes).unwrap();
    bytes
}

#[test]
fn an_entry_that_is_being_sealed_or_written_holds_up_no_other() {
    let there = TestLog::open();
    let (large, first, second) = (call(1 << 20), call(1), call(1));
    let mut bytes = encoded(&large);
    let number = there.log.reserve_number().unwrap();
    there.append(&first);
    assert_eq!(there.written(), [vec![first.clone()]], "while the large one is sealed");

    number.seal_entry(&mut bytes).unwrap();
    let placed = there.log.place_entry(number.file, &bytes).unwrap();
    let EntryPlacement::Reserved(place) = placed else { panic!("it is written by itself") };
    there.append(&second);
    let behind = [vec![first.clone(), second.clone()]];
    assert_eq!(there.written(), behind, "while the large one is written");

    there.log.write_entry(&place, &bytes).unwrap();
    assert_eq!(there.written(), [vec![first, large, second]]);
    let synced = *there.log.synced_writes.lock();
    let position = there.log.write_out().unwrap();
    assert!(position.writes > synced, "what was written since is not synced by then");
    there.log.sync_to(position).unwrap();
}

#[test]
fn an_entry_whose_file_is_followed_by_another_meanwhile_is_in_its_own() {
    let there = TestLog::open();
    let (slow, filling, next) = (call(1), call(MAX_LOG_FILE_BYTES as usize), call(1));
    let mut bytes = encoded(&slow);
    let number = there.log.reserve_number().unwrap();
    there.append(&filling);
    there.append(&next);
    number.seal_entry(&mut bytes).unwrap();
    let placed = there.log.place_entry(number.file, &bytes).unwrap();
    let EntryPlacement::Reserved(place) = placed else { panic!("it is written by itself") };
    // All that others have is in the database; this one still needs its file.
    there.log.settle([number.file, number.file + 1].into_iter(), true);
    there.log.write_entry(&place, &bytes).unwrap();
    assert_eq!(there.written()[0], [filling, slow]);
    there.log.sync_to(there.log.write_out().unwrap()).unwrap();
    there.log.settle([number.file].into_iter(), true);
    assert_eq!(there.written().len(), 1, "what is moved goes");
}

#[test]
fn nobody_is_told_that_a_log_which_was_closed_survives() {
    let there = TestLog::open();
    there.log.append_entry(&call(1), None).unwrap();
    let position = there.log.write_out().unwrap();
    there.log.close();
    assert!(there.log.sync_to(position).is_err());
    assert!(there.log.append_entry(&call(1), None).is_none());
}

#[test]
fn a_log_of_another_version_is_kept() {
    let seal = JournalSeal::load_beside(&tempfile::tempdir().unwrap().path().join("journal.db"));
    let seal = seal.unwrap();
    for (bytes, is_kept) in [(&b"mlk-log1 and more"[..], true), (b"mlk-log2", false), (b"", false)]
    {
        assert_eq!(read_log(bytes, &seal).has_unknown, is_kept, "{bytes:?}");
    }
}
