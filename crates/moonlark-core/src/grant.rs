//! Permissions, and the proofs that one was checked.
//!
//! A host module cannot act on the world with a plain string: it needs an
//! [`AllowedUrl`], an [`AllowedDir`], an [`AllowedExec`], an [`AllowedDatabase`] and
//! so on, and only the checks below make those. A denial says which line would allow it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use url::{Host, Url};

use crate::problem::{Problem, Result};
use crate::value::shorten;

/// One permission, as written in `allow = ["net:api.github.com"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// Reach a host, on one port or on any.
    Net { host: String, port: Option<u16> },
    /// Read one environment variable.
    Env(String),
    /// Write into the script's own directory.
    FsWrite,
    /// Run one command: a bare name, or an absolute path.
    Exec(String),
    /// Open one SQLite database: an absolute path, or one from the script's
    /// directory.
    Sqlite(String),
    /// Change databases, not only read them.
    SqlWrite,
    /// Call tools whose name matches.
    Tool(String),
}

impl FromStr for Grant {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |why: &str| {
            Problem::bad_config(format!("{text:?} is not a grant: {why}")).hint(
                "grants look like \"net:api.github.com\", \"net:127.0.0.1:8080\", \"env:NAME\", \"fs:write\", \"exec:git\", \"sqlite:../data/app.db\", \"sql:write\" or \"tool:jira_*\"",
            )
        };
        let (kind, what) = text.split_once(':').ok_or_else(|| bad("it has no kind"))?;
        match kind {
            _ if what.is_empty() => Err(bad("it names nothing")),
            // A directory with Unix sockets in it.
            "net" if what.starts_with('/') => {
                Ok(Grant::Net { host: socket_dir(what).to_owned(), port: None })
            }
            "net" => {
                let (host, port) = split_port(what);
                let port = match port {
                    Some(port) => Some(port.parse().map_err(|_| bad("the port is not a number"))?),
                    None => None,
                };
                Ok(Grant::Net { host: host.to_ascii_lowercase(), port })
            }
            "env" => Ok(Grant::Env(what.to_owned())),
            "fs" if what == "write" => Ok(Grant::FsWrite),
            "fs" => Err(bad("only \"fs:write\" exists; reading is allowed anyway")),
            "exec" if is_command(what) => Ok(Grant::Exec(what.to_owned())),
            "exec" => Err(bad("a command is a bare name such as git, or an absolute path")),
            "sqlite" => Ok(Grant::Sqlite(what.to_owned())),
            "sql" if what == "write" => Ok(Grant::SqlWrite),
            "sql" => Err(bad("only \"sql:write\" exists; reading needs no grant of its own")),
            "tool" => Ok(Grant::Tool(what.to_owned())),
            _ => Err(bad("the kind is none of net, env, fs, exec, sqlite, sql, tool")),
        }
    }
}

/// `host:port`, `[v6]:port` or a bare host.
fn split_port(text: &str) -> (&str, Option<&str>) {
    if let Some(rest) = text.strip_prefix('[') {
        return match rest.split_once(']') {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => (text, None),
        };
    }
    match text.rsplit_once(':') {
        // More than one colon and no brackets: a bare IPv6 address.
        Some((host, port)) if !host.contains(':') => (host, Some(port)),
        _ => (text, None),
    }
}

/// A name that stands in a folder of `PATH`, or a path that means one file
/// whatever the current folder is. Nothing that reads as one and is another.
pub fn is_command(text: &str) -> bool {
    if text.chars().any(char::is_control) || text.trim() != text {
        return false;
    }
    if !text.starts_with('/') {
        let blank = |c: char| c.is_whitespace() || c == '/';
        return !text.is_empty() && text != "." && text != ".." && !text.contains(blank);
    }
    // `//`, `/./` and a slash at the end vanish when put together again.
    let plain: PathBuf = Path::new(text)
        .components()
        .filter(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        .collect();
    text != "/" && plain.as_os_str() == text
}

/// `/run/postgresql/` is the same directory as `/run/postgresql`.
fn socket_dir(text: &str) -> &str {
    match text.trim_end_matches('/') {
        "" => "/",
        dir => dir,
    }
}

/// What a script may do, and where its operator would allow more.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    grants: Vec<Grant>,
    /// Public hosts may be reached without being named.
    public_net: bool,
    /// The script's own directory.
    dir: Option<PathBuf>,
    /// The configuration key whose `allow` would grant more.
    owner: String,
    /// Commands that the script's author says it runs.
    declared: Vec<String>,
}

impl Grants {
    /// What an authored script has: its directory, public hosts, `grants`.
    pub fn authored(owner: impl Into<String>, dir: PathBuf, grants: Vec<Grant>) -> Self {
        Self { grants, public_net: true, dir: Some(dir), owner: owner.into(), declared: Vec::new() }
    }

    /// What a script has while it loads: its directory, nothing else.
    pub fn loading(owner: impl Into<String>, dir: PathBuf) -> Self {
        Self { public_net: false, ..Self::authored(owner, dir, Vec::new()) }
    }

    /// The same, for a script whose author says which commands it runs.
    #[must_use]
    pub fn declaring(mut self, commands: Vec<String>) -> Self {
        self.declared = commands;
        self
    }

    /// The same with more, for a test: it may run every command it was granted,
    /// since the scripts it tries out say themselves which they run.
    #[must_use]
    pub fn for_test(mut self, more: &[Grant]) -> Self {
        self.grants.extend_from_slice(more);
        let command = |grant: &Grant| match grant {
            Grant::Exec(command) => Some(command.clone()),
            _ => None,
        };
        self.declared = self.grants.iter().filter_map(command).collect();
        self
    }

    /// May `url` be reached? `what` is the tool that asks, for the message.
    pub fn url(&self, what: &str, url: &Url) -> Result<AllowedUrl> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Problem::bad_request(format!(
                "{what} takes http and https addresses, not {}:",
                url.scheme()
            )));
        }
        let host = url
            .host()
            .ok_or_else(|| Problem::bad_request(format!("{what}: the address has no host")))?;
        let port = url.port_or_known_default().unwrap_or(0);
        let name = host_name(&host);
        if self.names_exactly(&name, port) {
            return Ok(AllowedUrl { url: url.clone(), reach: Reach::Named });
        }
        let public = match host {
            Host::Ipv4(ip) => is_public(ip.into()),
            Host::Ipv6(ip) => is_public(ip.into()),
            // Where a name leads is checked after DNS, by whoever holds Reach::Public.
            Host::Domain(domain) => !is_local_name(domain),
        };
        if public && (self.public_net || self.names_by_pattern(&name, port)) {
            return Ok(AllowedUrl { url: url.clone(), reach: Reach::Public });
        }
        Err(self.net_denied(what, &name, url.port()))
    }

    /// The Problem for a name that DNS sent to an address scripts may not reach.
    pub fn net_denied(&self, what: &str, host: &str, port: Option<u16>) -> Problem {
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let target = match port {
            Some(port) => format!("{bracketed}:{port}"),
            None => bracketed,
        };
        self.denial(format!("{what} may not reach {target}"), &format!("net:{target}"))
    }

    pub fn env(&self, what: &str, name: &str) -> Result<AllowedEnv> {
        if self.grants.iter().any(|grant| matches!(grant, Grant::Env(allowed) if allowed == name)) {
            return Ok(AllowedEnv(name.to_owned()));
        }
        Err(self.denial(format!("{what} may not read the variable {name}"), &format!("env:{name}")))
    }

    /// The script's own directory, for reading.
    pub fn dir(&self, what: &str) -> Result<AllowedDir> {
        match &self.dir {
            Some(dir) => Ok(AllowedDir { dir: dir.clone(), write: false }),
            None => Err(Problem::denied(format!("{what} has no directory to work in"))),
        }
    }

    /// The script's own directory, for writing.
    pub fn writable_dir(&self, what: &str) -> Result<AllowedDir> {
        let AllowedDir { dir, .. } = self.dir(what)?;
        if self.grants.contains(&Grant::FsWrite) {
            return Ok(AllowedDir { dir, write: true });
        }
        Err(self.denial(format!("{what} may not write files"), "fs:write"))
    }

    /// May `command` be run? Its author has to say so, and the operator.
    pub fn exec(&self, what: &str, command: &str) -> Result<AllowedExec> {
        if !is_command(command) {
            let shown = shorten(command);
            return Err(Problem::denied(format!(
                "{what} may not run {shown:?}: this is neither a bare name nor an absolute path"
            ))
            .hint("name the command as it is in allowed_exec, such as \"git\""));
        }
        if !self.declared.iter().any(|declared| declared == command) {
            return Err(Problem::denied(format!(
                "{what} may not run {command}, which the script does not declare"
            ))
            .hint(format!("add \"{command}\" to allowed_exec in the script")));
        }
        if self
            .grants
            .iter()
            .any(|grant| matches!(grant, Grant::Exec(allowed) if allowed == command))
        {
            return Ok(AllowedExec(command.to_owned()));
        }
        Err(self.denial(format!("{what} may not run {command}"), &format!("exec:{command}")))
    }

    /// May the SQLite database at `path` be read? `resolve` says where a path
    /// leads once every link is followed, and nothing where it leads nowhere;
    /// only what that says is compared.
    pub fn database(
        &self,
        what: &str,
        path: &str,
        resolve: impl Fn(&Path) -> Option<PathBuf>,
    ) -> Result<AllowedDatabase> {
        let AllowedDir { dir, .. } = self.dir(what)?;
        // What leads nowhere is judged by its words, so that a denial does not
        // tell what exists elsewhere.
        let real = |path: &Path| resolve(path).unwrap_or_else(|| plain(path));
        let wanted = real(&dir.join(path));
        let named =
            |grant: &Grant| matches!(grant, Grant::Sqlite(file) if real(&dir.join(file)) == wanted);
        if wanted.starts_with(real(&dir)) || self.grants.iter().any(named) {
            return Ok(AllowedDatabase(wanted));
        }
        let shown = shorten(path);
        Err(self.denial(
            format!("{what} may not open {shown}, which is outside the script's directory"),
            &format!("sqlite:{shown}"),
        ))
    }

    /// May the database server at `host` be reached? It has to be named, also
    /// when it is public. A host that begins with `/` is a directory with a Unix
    /// socket in it.
    pub fn server(&self, what: &str, host: &str, port: u16) -> Result<AllowedServer> {
        let socket = host.starts_with('/');
        let name = match socket {
            true => socket_dir(host).to_owned(),
            false => host.trim_end_matches('.').to_ascii_lowercase(),
        };
        if self.names_exactly(&name, port) {
            return Ok(AllowedServer { host: name, port });
        }
        Err(self.net_denied(what, &name, (!socket).then_some(port)))
    }

    /// May databases be changed?
    pub fn sql_write(&self, what: &str) -> Result<AllowedWrite> {
        if self.grants.contains(&Grant::SqlWrite) {
            return Ok(AllowedWrite(()));
        }
        Err(self.denial(format!("{what} may not change databases"), "sql:write"))
    }

    /// May the script call `tool`?
    pub fn tool(&self, tool: &str) -> Result<()> {
        let allowed =
            |grant: &Grant| matches!(grant, Grant::Tool(pattern) if matches_pattern(pattern, tool));
        if self.grants.iter().any(allowed) {
            return Ok(());
        }
        Err(self.denial(format!("context.call may not call {tool}"), &format!("tool:{tool}")))
    }

    fn names_exactly(&self, host: &str, port: u16) -> bool {
        self.grants.iter().any(|grant| {
            matches!(grant, Grant::Net { host: allowed, port: on }
                if allowed == host && on.is_none_or(|on| on == port))
        })
    }

    fn names_by_pattern(&self, host: &str, port: u16) -> bool {
        self.grants.iter().any(|grant| {
            matches!(grant, Grant::Net { host: allowed, port: on }
                if matches_pattern(allowed, host) && on.is_none_or(|on| on == port))
        })
    }

    fn denial(&self, message: String, grant: &str) -> Problem {
        Problem::denied(message)
            .hint(format!("add \"{grant}\" to allow for {} in moonlark.toml", self.owner))
    }
}

/// Proof that a script may reach this address.
#[derive(Debug, Clone)]
pub struct AllowedUrl {
    url: Url,
    reach: Reach,
}

/// How far the permission goes once DNS has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Only public addresses.
    Public,
    /// Wherever the name leads: the operator wrote it down.
    Named,
}

impl AllowedUrl {
    pub fn url(&self) -> &Url {
        &self.url
    }

    pub fn reach(&self) -> Reach {
        self.reach
    }
}

/// Proof that a script may read this variable.
#[derive(Debug)]
pub struct AllowedEnv(String);

impl AllowedEnv {
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// Proof that a script may use this directory.
#[derive(Debug)]
pub struct AllowedDir {
    dir: PathBuf,
    write: bool,
}

impl AllowedDir {
    pub fn path(&self) -> &Path {
        &self.dir
    }

    pub fn may_write(&self) -> bool {
        self.write
    }
}

/// Proof that a script may run this command.
#[derive(Debug)]
pub struct AllowedExec(String);

impl AllowedExec {
    /// A bare name or an absolute path.
    pub fn command(&self) -> &str {
        &self.0
    }
}

/// Proof that a script may open this SQLite database.
#[derive(Debug)]
pub struct AllowedDatabase(PathBuf);

impl AllowedDatabase {
    /// Where it is, with every link followed.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Proof that a script may reach this database server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AllowedServer {
    host: String,
    port: u16,
}

impl AllowedServer {
    /// A name, an address, or the directory of a Unix socket.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Proof that a script may change databases.
#[derive(Debug, Clone, Copy)]
pub struct AllowedWrite(());

/// `path` without `.` and `..`, by its words alone.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// `*` stands for any run of characters.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

fn host_name(host: &Host<&str>) -> String {
    match host {
        Host::Domain(domain) => domain.trim_end_matches('.').to_ascii_lowercase(),
        Host::Ipv4(ip) => ip.to_string(),
        Host::Ipv6(ip) => ip.to_string(),
    }
}

/// Names that mean this machine or this network without asking DNS.
fn is_local_name(domain: &str) -> bool {
    let domain = domain.trim_end_matches('.').to_ascii_lowercase();
    domain == "localhost"
        || domain.ends_with(".localhost")
        || domain.ends_with(".local")
        || domain.ends_with(".internal")
}

/// An address on the public internet: not this machine, not its network, not a
/// cloud's metadata service, not a range that embeds one of those.
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let special = ip.is_unspecified()
        || ip.is_loopback()
        || ip.is_private()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_broadcast()
        || ip.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19));
    !special
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let segments = ip.segments();
    // Addresses that carry an IPv4 address are judged by it.
    let embedded = match segments {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0, 0, ..] => {
            Some((segments[6], segments[7]))
        }
        [0x2002, high, low, ..] => Some((high, low)),
        _ => None,
    };
    if let Some((high, low)) = embedded {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        return is_public_v4(Ipv4Addr::new(a, b, c, d));
    }
    // Global unicast only, without documentation, Teredo and benchmarking.
    segments[0] & 0xe000 == 0x2000
        && segments[..2] != [0x2001, 0xdb8]
        && segments[..2] != [0x2001, 0]
        && segments[..2] != [0x2001, 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(grants: &[&str], url: &str) -> String {
        let grants = Grants::authored(
            "tools.script.t",
            PathBuf::from("."),
            grants.iter().map(|grant| grant.parse().unwrap()).collect(),
        );
        match grants.url("http.get", &url.parse().unwrap()) {
            Ok(proof) => format!("{:?}", proof.reach()),
            Err(problem) => problem.to_string(),
        }
    }

    #[test]
    fn public_hosts_are_open_and_local_ones_only_by_name() {
        assert_eq!(reach(&[], "https://api.example.com/x"), "Public");
        assert_eq!(reach(&["net:api.example.com"], "https://api.example.com/x"), "Named");
        assert_eq!(
            reach(&[], "http://localhost:8080/"),
            "error[denied]: http.get may not reach localhost:8080\nhint: add \"net:localhost:8080\" to allow for tools.script.t in moonlark.toml"
        );
        assert_eq!(reach(&["net:localhost:8080"], "http://localhost:8080/"), "Named");
        assert!(reach(&["net:localhost:8080"], "http://localhost:8081/").contains("denied"));
        assert!(reach(&["net:*"], "http://127.0.0.1/").contains("denied"));
        assert_eq!(reach(&["net:127.0.0.1"], "http://2130706433:99/"), "Named");
        assert_eq!(reach(&["net:[::1]:80"], "http://[::1]/"), "Named");
    }

    #[test]
    fn every_spelling_of_a_local_address_is_denied() {
        for url in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://017700000001/",
            "http://0.0.0.0/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::]/",
            "http://10.0.0.1/",
            "http://172.16.0.1/",
            "http://192.168.1.1/",
            "http://169.254.169.254/latest",
            "http://100.64.0.1/",
            "http://[fd00::1]/",
            "http://[fe80::1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "http://user@127.0.0.1/",
            "http://LOCALHOST./",
            "http://a.localhost/",
            "http://metadata.google.internal/",
        ] {
            assert!(reach(&[], url).starts_with("error[denied]"), "{url}: {}", reach(&[], url));
        }
        assert!(reach(&[], "file:///etc/passwd").starts_with("error[bad_request]"));
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("jira_*", "jira_create", true),
            ("jira_*", "xjira_create", false),
            ("*", "", true),
            ("a*c", "abc", true),
            ("a*c", "acb", false),
            ("echo", "echo", true),
            ("echo", "echo2", false),
            ("*a*a", "aa", true),
            ("*.github.com", "github.com", false),
        ] {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        }
    }

    fn exec(declared: &[&str], grants: &[&str], command: &str) -> String {
        let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
        let grants = Grants::authored("tools.script.t", PathBuf::from("."), grants)
            .declaring(declared.iter().map(|command| (*command).to_owned()).collect());
        match grants.exec("exec.run", command) {
            Ok(proof) => proof.command().to_owned(),
            Err(problem) => problem.to_string(),
        }
    }

    #[test]
    fn a_command_runs_when_author_and_operator_say_so() {
        assert_eq!(exec(&["git"], &["exec:git"], "git"), "git");
        assert_eq!(exec(&["/opt/a b/x"], &["exec:/opt/a b/x"], "/opt/a b/x"), "/opt/a b/x");
        assert_eq!(
            exec(&[], &["exec:git"], "git"),
            "error[denied]: exec.run may not run git, which the script does not declare\nhint: add \"git\" to allowed_exec in the script"
        );
        assert_eq!(
            exec(&["git"], &["exec:gi", "exec:/usr/bin/git"], "git"),
            "error[denied]: exec.run may not run git\nhint: add \"exec:git\" to allow for tools.script.t in moonlark.toml"
        );
        // A pattern is a name like any other.
        assert!(exec(&["*", "git"], &["exec:*"], "git").starts_with("error[denied]"));
    }

    #[test]
    fn what_only_looks_like_a_command_is_never_one() {
        for command in [
            "",
            ".",
            "..",
            "./git",
            "../bin/git",
            "bin/git",
            "git/",
            " git",
            "git ",
            "git\t",
            "git\n",
            "g it",
            "git\u{a0}",
            "git\0",
            "git\0x",
            "/",
            "//bin/git",
            "/bin//git",
            "/bin/git/",
            "/bin/../bin/git",
            "/bin/./git",
            "/bin/git\n",
            "/bin/git ",
            "/bin/git\0",
        ] {
            let text = exec(&[command], &[], command);
            assert!(
                text.contains("neither a bare name nor an absolute path"),
                "{command:?}: {text}"
            );
            let grant = format!("exec:{command}").parse::<Grant>();
            assert!(grant.is_err(), "{command:?}");
        }
        // The one does not stand for the other.
        assert!(exec(&["git"], &["exec:git"], "/usr/bin/git").contains("does not declare"));
    }

    #[test]
    fn a_database_is_open_inside_the_directory_or_by_name() {
        let open = |grants: &[&str], path: &str| {
            let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
            let grants = Grants::authored("tools.script.t", PathBuf::from("/p/tools"), grants);
            // One link in the directory leads out of it; another database is missing.
            let links = |path: &Path| match path.to_str().unwrap() {
                "/p/tools/link.db" => Some(PathBuf::from("/p/data/app.db")),
                missing if missing.contains("missing") => None,
                _ => Some(plain(path)),
            };
            match grants.database("sqlite.query", path, links) {
                Ok(proof) => proof.path().display().to_string(),
                Err(problem) => problem.to_string(),
            }
        };
        assert_eq!(open(&[], "a.db"), "/p/tools/a.db");
        assert_eq!(open(&[], "x/../missing.db"), "/p/tools/missing.db");
        for path in ["../data/app.db", "/p/data/app.db", "link.db"] {
            assert!(open(&[], path).starts_with("error[denied]"), "{path}");
            for grant in ["sqlite:../data/app.db", "sqlite:/p/data/app.db", "sqlite:link.db"] {
                assert_eq!(open(&[grant], path), "/p/data/app.db", "{grant} {path}");
            }
        }
        assert_eq!(
            open(&["sqlite:../data"], "../data/missing.db"),
            "error[denied]: sqlite.query may not open ../data/missing.db, which is outside the script's directory\nhint: add \"sqlite:../data/missing.db\" to allow for tools.script.t in moonlark.toml"
        );
        assert!(open(&[], "../tools-of-others/a.db").starts_with("error[denied]"));
    }

    #[test]
    fn a_database_server_is_reached_only_by_name() {
        let reach = |grant: &str, host: &str, port| {
            let grants = vec![grant.parse().unwrap()];
            let grants = Grants::authored("tools.script.t", PathBuf::from("."), grants);
            match grants.server("postgres.query", host, port) {
                Ok(proof) => format!("{} {}", proof.host(), proof.port()),
                Err(problem) => problem.to_string(),
            }
        };
        assert_eq!(reach("net:DB.example.com", "db.Example.com.", 5432), "db.example.com 5432");
        assert_eq!(reach("net:/run/PG/", "/run/PG", 5433), "/run/PG 5433");
        assert_eq!(reach("net:[::1]:5432", "::1", 5432), "::1 5432");
        assert_eq!(
            reach("net:*", "db.example.com", 5432),
            "error[denied]: postgres.query may not reach db.example.com:5432\nhint: add \"net:db.example.com:5432\" to allow for tools.script.t in moonlark.toml"
        );
        assert_eq!(
            reach("net:/run/pg", "/run/PG", 5432),
            "error[denied]: postgres.query may not reach /run/PG\nhint: add \"net:/run/PG\" to allow for tools.script.t in moonlark.toml"
        );
        assert!(reach("net:localhost:5433", "localhost", 5432).starts_with("error[denied]"));
    }

    #[test]
    fn a_malformed_grant_says_what_grants_look_like() {
        let text = "web:x".parse::<Grant>().unwrap_err().to_string();
        assert!(
            text.starts_with("error[bad_config]: \"web:x\" is not a grant: the kind is none of")
        );
    }
}
