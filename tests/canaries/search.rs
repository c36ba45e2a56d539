//! Canaries, and where they were found.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use ring::rand::{SecureRandom, SystemRandom};

/// A secret that occurs nowhere else in the world.
pub struct Canary {
    pub name: &'static str,
    /// What is put in: letters, digits, and characters that every encoding changes.
    pub value: String,
    /// Places where it may be found, by how their names begin.
    pub may: &'static [&'static str],
    /// The letters and digits alone, in every form that is looked for.
    needles: Vec<String>,
}

impl Canary {
    pub fn new(name: &'static str, may: &'static [&'static str]) -> Canary {
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes).unwrap();
        let core = format!("{:032x}", u128::from_be_bytes(bytes));
        Canary::of(name, format!("{core}/+="), &core, may)
    }

    /// One that somebody else made.
    pub fn of(
        name: &'static str,
        value: String,
        core: &str,
        may: &'static [&'static str],
    ) -> Canary {
        let mut needles = vec![core.to_owned(), core.to_uppercase()];
        let hex: String = core.bytes().map(|byte| format!("{byte:02x}")).collect();
        needles.extend([hex.to_uppercase(), hex]);
        for before in 0..3 {
            let mut bytes = vec![0; before];
            bytes.extend_from_slice(core.as_bytes());
            let (first, last) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
            needles.push(STANDARD_NO_PAD.encode(&bytes)[first..last].to_owned());
            needles.push(URL_SAFE_NO_PAD.encode(&bytes)[first..last].to_owned());
        }
        needles.sort();
        needles.dedup();
        Canary { name, value, may, needles }
    }

    fn is_in(&self, bytes: &[u8]) -> bool {
        self.needles.iter().any(|needle| memchr::memmem::find(bytes, needle.as_bytes()).is_some())
    }
}

/// Everything that was written or sent, by where.
#[derive(Default)]
pub struct Evidence(Vec<(String, Vec<u8>)>);

impl Evidence {
    pub fn add(&mut self, place: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.0.push((place.into(), bytes.into()));
    }

    /// Every file below `dir`, as it is on the disk.
    pub fn add_files(&mut self, dir: &Path) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                self.add_files(&path)
            } else {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                self.add(format!("file {name}"), std::fs::read(&path).unwrap_or_default());
            }
        }
    }

    /// Whether there is something with this text in it.
    pub fn has(&self, place: &str, text: &str) -> bool {
        let has = |bytes: &[u8]| memchr::memmem::find(bytes, text.as_bytes()).is_some();
        self.0.iter().any(|(it, bytes)| it.starts_with(place) && !bytes.is_empty() && has(bytes))
    }

    /// Each canary is found where it was meant to be, and nowhere else.
    pub fn judge(&self, canaries: &[Canary]) {
        let mut faults = Vec::new();
        for canary in canaries {
            let found: Vec<&(String, Vec<u8>)> =
                self.0.iter().filter(|(_, bytes)| canary.is_in(bytes)).collect();
            for (place, bytes) in &found {
                if !canary.may.iter().any(|may| place.starts_with(may)) {
                    faults.push(format!(
                        "{} is in {place}: {}",
                        canary.name,
                        around(canary, bytes)
                    ));
                }
            }
            // The first is what it is for: it has to get there.
            let meant = canary.may.first();
            if meant.is_some_and(|meant| !found.iter().any(|(place, _)| place.starts_with(meant))) {
                faults.push(format!("{} never got to {meant:?}", canary.name));
            }
        }
        assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    }
}

/// The words before and after it.
fn around(canary: &Canary, bytes: &[u8]) -> String {
    let at = canary.needles.iter().find_map(|it| memchr::memmem::find(bytes, it.as_bytes()));
    let at = at.unwrap_or_default();
    let part = &bytes[at.saturating_sub(120)..(at + 60).min(bytes.len())];
    String::from_utf8_lossy(part).replace(['\n', '\r'], " ")
}
