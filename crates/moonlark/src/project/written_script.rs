//! A script that was just written is in use at once, before it is certain that the change
//! on disk is complete: its author waits for it.
//!
//! [`reload`](crate::reload) looks at the whole disk when nothing more has happened for a
//! moment. Until then only one thing is certain to be no half of a change: one file was
//! written and closed, the configuration on disk is the one in force, and the script offers
//! tools that no rule can tell from those it had. Everything else is left to that look at
//! the disk: scripts that are new, gone or broken, and several that change together.
//! Nothing is said of it before.

use std::path::Path;
use std::sync::Arc;

use moonlark_config::config_file::LoadedConfig;
use moonlark_core::Tool;

use super::{Project, ReloadReport};
use crate::scripts::{ScriptEntry, ScriptKey, ScriptLoadSettings, ScriptProduct};

impl Project {
    /// Load the script that `path` is a file of, and put it in force if that is safe by
    /// itself. `is_alone` says whether nothing else was written meanwhile. Dropped before it
    /// is done, it has changed nothing.
    pub(crate) async fn load_written_script(
        &self,
        path: &Path,
        is_alone: impl Fn() -> bool,
    ) -> ReloadReport {
        let mut report = ReloadReport::default();
        // Whoever loads scripts now would put an older version in the place of this one.
        let Ok(_jobs) = self.jobs.try_lock() else { return report };
        let Some((key, old, loaded)) = self.find_script_of_file(path) else { return report };
        let settings = ScriptLoadSettings::from_config(&old.found, &loaded.config);
        if old.is_unchanged(&old.found, &settings, &loaded) || settings != old.settings {
            return report;
        }
        let entry = self.load_script(old.found.clone(), settings, loaded.clone()).await;
        let is_safe = entry.problem.is_none()
            && has_same_tools_for_rules(&old, &entry)
            && is_alone()
            && self.is_config_in_force(&loaded);
        let mut state = self.state.lock();
        let is_current = state.staged.is_none()
            && Arc::ptr_eq(&state.loaded, &loaded)
            && state.scripts.get(&key).is_some_and(|now| Arc::ptr_eq(now, &old));
        if is_safe && is_current {
            report.changes.push(format!("{} changed", entry.found.file));
            state.scripts.insert(key, Arc::new(entry));
            self.compose_catalog(&mut state);
        }
        report
    }

    /// The only script that consists of this file, among others, and the configuration it
    /// was loaded with.
    fn find_script_of_file(
        &self,
        path: &Path,
    ) -> Option<(ScriptKey, Arc<ScriptEntry>, Arc<LoadedConfig>)> {
        let state = self.state.lock();
        if state.loading || state.staged.is_some() {
            return None;
        }
        let mut concerned = state.scripts.iter().filter(|(_, entry)| entry.has_source_file(path));
        let (key, entry) = concerned.next()?;
        let is_only = concerned.next().is_none();
        let has_tools = matches!(entry.product, Some(ScriptProduct::Tools(_)));
        (is_only && has_tools).then(|| (key.clone(), entry.clone(), state.loaded.clone()))
    }

    fn is_config_in_force(&self, loaded: &LoadedConfig) -> bool {
        self.read_config().is_ok_and(|on_disk| on_disk == *loaded)
    }
}

/// Whether both have the same tools, as far as rules can tell.
fn has_same_tools_for_rules(old: &ScriptEntry, new: &ScriptEntry) -> bool {
    let (Some(ScriptProduct::Tools(old)), Some(ScriptProduct::Tools(new))) =
        (&old.product, &new.product)
    else {
        return false;
    };
    old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_same_for_rules(old, new))
}

fn is_same_for_rules(old: &Tool, new: &Tool) -> bool {
    old.name == new.name
        && old.original_name == new.original_name
        && old.aliases == new.aliases
        && old.effects == new.effects
        && old.only_calls == new.only_calls
        && old.source == new.source
        && old.expose == new.expose
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(name: &str, number: u32, more: &str) -> String {
        format!(
            "tool = {{ name = '{name}', description = 'version {number}', parameters = {{}}{more} }}\n\
             function tool.execute() return {number} end\n"
        )
    }

    struct WrittenProject {
        folder: tempfile::TempDir,
        project: Project,
    }

    impl WrittenProject {
        async fn with_files(files: &[(&str, &str)]) -> WrittenProject {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join("tools")).unwrap();
            std::fs::write(folder.path().join("moonlark.toml"), "").unwrap();
            for (file, text) in files {
                std::fs::write(folder.path().join(file), text).unwrap();
            }
            let project = Project::open(None, folder.path()).await.map_err(|_| "rejected").unwrap();
            WrittenProject { folder, project }
        }

        /// What is said, and the description of `one` afterwards.
        async fn write(&self, file: &str, text: &str, is_alone: bool) -> (Vec<String>, String) {
            let path = self.folder.path().join(file);
            std::fs::write(&path, text).unwrap();
            let report = self.project.load_written_script(&path, || is_alone).await;
            assert!(report.problems.is_empty(), "nothing is said of what does not load");
            let catalog = self.project.gateway.catalog();
            assert_eq!(catalog.problems(), []);
            (report.changes, catalog.find_tool("one").unwrap().description.clone())
        }
    }

    #[tokio::test]
    async fn a_new_version_of_the_same_tool_is_in_use_at_once() {
        let project =
            WrittenProject::with_files(&[("tools/one.lua", &version("one", 1, ""))]).await;
        let written = project.write("tools/one.lua", &version("one", 2, ""), true).await;
        assert_eq!(written, (vec!["tools/one.lua changed".to_owned()], "version 2".to_owned()));
        // The look at the disk that follows finds nothing new.
        assert!(project.project.reload().await.changes.is_empty());
    }

    #[tokio::test]
    async fn what_could_be_half_of_a_change_waits_for_the_rest() {
        let library = "return 'version'";
        let user =
            |name: &str| format!("local text = require('./_text')\n{}", version(name, 1, ""));
        for (what, file, text, config, is_alone) in [
            ("emptied", "tools/one.lua", String::new(), "", true),
            ("cut off", "tools/one.lua", version("one", 2, "")[..90].to_owned(), "", true),
            ("another name", "tools/one.lua", version("other", 2, ""), "", true),
            (
                "other effects",
                "tools/one.lua",
                version("one", 2, ", annotations = { read_only = true }"),
                "",
                true,
            ),
            ("not alone", "tools/one.lua", version("one", 2, ""), "", false),
            ("new rules", "tools/one.lua", version("one", 2, ""), "[limits]\ntimeout = 7\n", true),
            ("new", "tools/new.lua", version("new", 1, ""), "", true),
            ("of several", "tools/_text.lua", "return 'other'".to_owned(), "", true),
        ] {
            let project = WrittenProject::with_files(&[
                ("tools/one.lua", &user("one")),
                ("tools/two.lua", &user("two")),
                ("tools/_text.lua", library),
            ])
            .await;
            std::fs::write(project.folder.path().join("moonlark.toml"), config).unwrap();
            let written = project.write(file, &text, is_alone).await;
            assert_eq!(written, (Vec::new(), "version 1".to_owned()), "{what}");
        }
    }

    #[tokio::test]
    async fn a_file_that_one_script_requires_is_in_use_at_once() {
        let text = "local text = require('./_text')\n\
                    tool = { name = 'one', description = text, parameters = {} }\n\
                    function tool.execute() return text end\n";
        let project = WrittenProject::with_files(&[
            ("tools/one.lua", text),
            ("tools/_text.lua", "return 'first'"),
        ])
        .await;
        let written = project.write("tools/_text.lua", "return 'second'", true).await;
        assert_eq!(written, (vec!["tools/one.lua changed".to_owned()], "second".to_owned()));
    }
}
