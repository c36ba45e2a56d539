//! Grants that a call of a host function needs, for one whose answer is on record: what a
//! script may no longer do, it is not told of either.
//!
//! A function checks its grants itself when it runs. This one does not run.

use url::Url;

use moonlark_core::grant::GrantSet;
use moonlark_core::problem::Result;
use moonlark_core::tool::Tool;
use moonlark_core::value::Value;

/// Whether a script with these grants may make the call.
pub(super) fn check_host_grant(grants: &GrantSet, tool: &Tool, args: &Value) -> Result<()> {
    let name = tool.name.as_str();
    let text = |field: &str| args.get(field).and_then(Value::as_str);
    match tool.source.name.as_str() {
        "http" => {
            let options = args.get("opts");
            let url = text("url").or_else(|| options?.get("url")?.as_str());
            match url.and_then(|url| Url::parse(url).ok()) {
                Some(url) => grants.check_url(name, &url).map(drop),
                None => Ok(()),
            }
        }
        "env" => text("name").map_or(Ok(()), |it| grants.check_env(name, it).map(drop)),
        "exec" => text("cmd").map_or(Ok(()), |it| grants.check_exec(name, it).map(drop)),
        "fs" if matches!(name, "fs.write" | "fs.remove") => {
            grants.check_writable_dir(name).map(drop)
        }
        "fs" => grants.check_dir(name).map(drop),
        "data" => grants.check_shared_dir(name).map(drop),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;
    use crate::tool_body::ToolBody;
    use moonlark_core::schema::Schema;
    use moonlark_core::tool::{Source, SourceKind};

    #[test]
    fn what_a_script_may_no_longer_do_needs_the_grant_that_it_lacks() {
        let grants = |allowed: &[&str], dir: Option<&str>| {
            let allowed = allowed.iter().map(|it| it.parse().unwrap()).collect();
            GrantSet::for_agent_script("execute", dir.map(PathBuf::from), allowed)
        };
        let check = |grants: &GrantSet, name: &str, args: &str| {
            let source = name.split('.').next().unwrap().to_owned();
            let source = Arc::new(Source { kind: SourceKind::Host, name: source });
            let body = ToolBody::from_fn(|_, _| Ok(Value::Null));
            let tool = Tool::new(name, source, Schema::description_only(Default::default()), body);
            check_host_grant(grants, &tool, &Value::parse_json(args.as_bytes()).unwrap()).is_ok()
        };
        let all = grants(&["net:a.example", "env:HOME", "exec:git", "fs:write"], Some("/tmp"));
        let none = grants(&[], None);
        for (name, args) in [
            ("http.get", r#"{"url":"https://a.example/x"}"#),
            ("http.request", r#"{"opts":{"url":"https://a.example/x"}}"#),
            ("env.get", r#"{"name":"HOME"}"#),
            ("exec.run", r#"{"cmd":"git"}"#),
            ("fs.read", r#"{"path":"x"}"#),
            ("fs.write", r#"{"path":"x"}"#),
        ] {
            assert!(check(&all, name, args), "{name}");
            assert!(!check(&none, name, args), "{name}");
        }
        assert!(check(&none, "sleep", "{}"));
    }
}
