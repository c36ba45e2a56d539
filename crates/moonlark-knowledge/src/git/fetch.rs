//! A repository elsewhere: its last commit, in a folder of ours.

use std::path::Path;

use moonlark_core::{Place, Problem, Result};

use super::GitSettings;
use super::command::Git;

/// What the last commit is called here.
pub(super) const HEAD: &str = "refs/moonlark/head";

/// Fetch whatever is new, and read from there.
pub(super) async fn newest(settings: &GitSettings, url: &str) -> Result<Git> {
    let cache = prepare(settings)?;
    let shown = without_secrets(url);
    let fetching = Git::fetching(&cache, url)?.named(shown.clone());
    if !cache.join("HEAD").exists() {
        fetching.line(&["init", "--bare", "--quiet"]).await?;
    }
    unlock(&cache);
    let reference = match &settings.branch {
        Some(branch) => format!("+refs/heads/{branch}:{HEAD}"),
        None => format!("+HEAD:{HEAD}"),
    };
    // Larger files are not needed, so they are not asked for.
    let filter = format!("--filter=blob:limit={}", settings.max_file.saturating_add(1));
    let fetched = fetching
        .line(&[
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
        return Err(problem.saying(message));
    }
    let reading = Git::reading(&cache)?.named(shown);
    Ok(reading)
}

fn prepare(settings: &GitSettings) -> Result<std::path::PathBuf> {
    let unusable = |error: std::io::Error| {
        let shown = settings.cache.display();
        Problem::unavailable(format!("{shown} cannot be used: {}", error.kind()))
            .at(Place::file(format!("connectors.git.{}", settings.name)))
    };
    std::fs::create_dir_all(&settings.cache).map_err(unusable)?;
    settings.cache.canonicalize().map_err(unusable)
}

/// Whoever fetched before us here was ended in the midst of it: only one sync of
/// a source runs at a time. Its locks would keep us out for ever.
fn unlock(cache: &Path) {
    for lock in ["shallow.lock", "config.lock", "packed-refs.lock", "refs/moonlark/head.lock"] {
        let _ = std::fs::remove_file(cache.join(lock));
    }
}

/// The URL of a repository as it may be shown.
pub fn without_secrets(url: &str) -> String {
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
            without_secrets("https://me:s3cret@example.com/a/b.git?t=1"),
            "https://example.com/a/b.git"
        );
        assert_eq!(without_secrets("https://s3cret@example.com/a"), "https://example.com/a");
        assert_eq!(without_secrets("git@example.com:a/b.git"), "git@example.com:a/b.git");
    }
}
