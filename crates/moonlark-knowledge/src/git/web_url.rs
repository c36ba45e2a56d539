//! Web URLs of files in repositories.

use crate::filesystem::join_url_path;

/// The address of the folder that paths are relative to; none where it is not known.
/// `prefix` is the part of the repository that is read.
pub(super) fn forge_folder_url(url: &str, branch: &str, prefix: &str) -> Option<String> {
    let (host, path) = split_host_and_path(url)?;
    let path = path.trim_matches('/').trim_end_matches(".git");
    if path.split('/').filter(|part| !part.is_empty()).count() < 2 {
        return None;
    }
    let middle = match host.as_str() {
        "github.com" => format!("blob/{branch}"),
        host if host == "gitlab.com" || host.starts_with("gitlab.") => {
            format!("-/blob/{branch}")
        }
        "bitbucket.org" => format!("src/{branch}"),
        "git.sr.ht" => format!("tree/{branch}/item"),
        // They want to know whether it is a branch or a commit.
        "codeberg.org" | "gitea.com" if branch != "HEAD" => format!("src/branch/{branch}"),
        _ => return None,
    };
    let root = join_url_path(&format!("https://{host}"), &format!("{path}/{middle}"));
    let prefix = prefix.trim_matches('/');
    Some(if prefix.is_empty() { root } else { join_url_path(&root, prefix) })
}

/// Host and path, of a URL or of what scp would understand.
fn split_host_and_path(url: &str) -> Option<(String, String)> {
    if let Ok(parsed) = url::Url::parse(url)
        && let Some(host) = parsed.host_str()
    {
        return Some((host.to_ascii_lowercase(), parsed.path().to_owned()));
    }
    let (host, path) = url.split_once(':')?;
    let host = host.rsplit('@').next().unwrap_or(host);
    (!host.contains('/')).then(|| (host.to_ascii_lowercase(), path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(url: &str, branch: &str, prefix: &str) -> Option<String> {
        Some(join_url_path(&forge_folder_url(url, branch, prefix)?, "docs/a b.md"))
    }

    #[test]
    fn pages_of_known_forges_are_found_and_others_are_not_made_up() {
        let github = Some("https://github.com/o/r/blob/main/docs/a%20b.md".to_owned());
        assert_eq!(page("https://github.com/o/r.git", "main", ""), github);
        assert_eq!(page("https://token@github.com/o/r", "main", ""), github);
        assert_eq!(page("git@github.com:o/r.git", "main", ""), github);
        assert_eq!(page("ssh://git@github.com/o/r.git", "main", ""), github);
        assert_eq!(
            page("https://gitlab.example.com/g/s/r.git", "HEAD", "sub/"),
            Some("https://gitlab.example.com/g/s/r/-/blob/HEAD/sub/docs/a%20b.md".to_owned())
        );
        assert_eq!(
            page("https://codeberg.org/o/r", "main", ""),
            Some("https://codeberg.org/o/r/src/branch/main/docs/a%20b.md".to_owned())
        );
        assert_eq!(page("https://codeberg.org/o/r", "HEAD", ""), None);
        assert_eq!(page("https://git.example.com/o/r", "main", ""), None);
        assert_eq!(page("/srv/git/r.git", "main", ""), None);
        assert_eq!(page("file:///srv/git/r.git", "main", ""), None);
    }
}
