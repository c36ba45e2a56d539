//! Fetching a remote repository: its last commit, in a folder of its own.

use std::path::Path;

use moonlark_core::{Problem, Result, SourceLocation};

use super::GitSettings;
use super::git_command::GitCommand;

/// What the last commit is called here.
pub(super) const FETCHED_HEAD_REF: &str = "refs/moonlark/head";

/// Fetch whatever is new, and read from there.
pub(super) async fn fetch_newest(settings: &GitSettings, url: &str) -> Result<GitCommand> {
    let cache = prepare_cache(settings)?;
    let shown = redact_repository_url(url);
    let fetching = GitCommand::for_fetching(&cache, url)?.with_name(shown.clone());
    if !cache.join("HEAD").exists() {
        fetching.read_output(&["init", "--bare", "--quiet"]).await?;
    }
    remove_stale_locks(&cache);
    let reference = match &settings.branch {
        Some(branch) => format!("+refs/heads/{branch}:{FETCHED_HEAD_REF}"),
        None => format!("+HEAD:{FETCHED_HEAD_REF}"),
    };
    // Larger files are not needed, so they are not asked for.
    let filter = format!("--filter=blob:limit={}", settings.max_file.saturating_add(1));
    let fetched = fetching
        .read_output(&[
            "fetch",
            "--quiet",
            "--depth=1",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-write-fetch-head",
            &filter,
            "origin",
            &reference,
        ])
        .await;
    if let Err(problem) = fetched {
        let message = problem.message.replace(url, &shown);
        return Err(problem.with_message(message));
    }
    Ok(GitCommand::for_reading(&cache)?.with_name(shown))
}

fn prepare_cache(settings: &GitSettings) -> Result<std::path::PathBuf> {
    let unusable = |error: std::io::Error| {
        let shown = settings.cache.display();
        Problem::unavailable(format!("{shown} cannot be used: {}", error.kind()))
            .at_location(SourceLocation::in_file(format!("connectors.git.{}", settings.name)))
    };
    std::fs::create_dir_all(&settings.cache).map_err(unusable)?;
    settings.cache.canonicalize().map_err(unusable)
}

/// Whoever fetched before us here was ended in the midst of it: only one sync of
/// a source runs at a time. Its locks would keep us out for ever.
fn remove_stale_locks(cache: &Path) {
    for lock in ["shallow.lock", "config.lock", "packed-refs.lock", "refs/moonlark/head.lock"] {
        let _ = std::fs::remove_file(cache.join(lock));
    }
}

/// The URL of a repository as it may be shown.
pub fn redact_repository_url(url: &str) -> String {
    match url::Url::parse(url) {
        Ok(mut parsed) if parsed.password().is_some() || parsed.scheme().starts_with("http") => {
            // It can only fail where there is no user to remove.
            let _ = parsed.set_username("");
            let _ = parsed.set_password(None);
            parsed.set_query(None);
            parsed.to_string()
        }
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_in_a_url_is_not_shown() {
        assert_eq!(
            redact_repository_url("https://me:s3cret@example.com/a/b.git?t=1"),
            "https://example.com/a/b.git"
        );
        assert_eq!(redact_repository_url("https://s3cret@example.com/a"), "https://example.com/a");
        assert_eq!(redact_repository_url("git@example.com:a/b.git"), "git@example.com:a/b.git");
    }
}
