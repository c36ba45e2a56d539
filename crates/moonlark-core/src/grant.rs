//! Permissions, and the proofs that one was checked.
//!
//! A host module cannot act on the world with a plain string: it needs an
//! [`AllowedUrl`], an [`AllowedDir`], an [`AllowedExec`], an [`AllowedDatabase`] and
//! so on, and only the checks below make those. A denial says which line would allow it.

mod network_target;
mod public_address;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use url::{Host, Url};

use crate::problem::{Problem, Result};
use crate::value::shorten_text;
pub use network_target::{AddressRange, NetworkReach, NetworkTarget, ReachVerdict};
use network_target::{normalize_host, normalize_socket_dir};
use public_address::is_local_name;
pub use public_address::is_public_address;

/// One permission, as written in `allow = ["net:api.github.com"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// Reach a host or a range of addresses, on one port or on any.
    Net(NetworkTarget),
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
    /// Save scripts.
    ScriptsWrite,
    /// See and replace the saved scripts of every caller.
    ScriptsWriteAll,
}

impl FromStr for Grant {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |why: &str| {
            Problem::bad_config(format!("{text:?} is not a grant: {why}")).with_hint(
                "grants look like \"net:api.github.com\", \"net:127.0.0.1:8080\", \"net:10.0.0.0/8\", \"env:NAME\", \"fs:write\", \"exec:git\", \"sqlite:../data/app.db\", \"sql:write\", \"scripts:write\" or \"tool:jira_*\"",
            )
        };
        let (kind, what) = text.split_once(':').ok_or_else(|| bad("it has no kind"))?;
        match kind {
            _ if what.is_empty() => Err(bad("it names nothing")),
            "net" => what.parse().map(Grant::Net).map_err(bad),
            "env" => Ok(Grant::Env(what.to_owned())),
            "fs" if what == "write" => Ok(Grant::FsWrite),
            "fs" => Err(bad("only \"fs:write\" exists; reading is allowed anyway")),
            "exec" if is_command(what) => Ok(Grant::Exec(what.to_owned())),
            "exec" => Err(bad("a command is a bare name such as git, or an absolute path")),
            "sqlite" => Ok(Grant::Sqlite(what.to_owned())),
            "sql" if what == "write" => Ok(Grant::SqlWrite),
            "sql" => Err(bad("only \"sql:write\" exists; reading needs no grant of its own")),
            "tool" => Ok(Grant::Tool(what.to_owned())),
            "scripts" if what == "write" => Ok(Grant::ScriptsWrite),
            "scripts" if what == "write-all" => Ok(Grant::ScriptsWriteAll),
            "scripts" => Err(bad("only \"scripts:write\" and \"scripts:write-all\" exist")),
            _ => Err(bad("the kind is none of net, env, fs, exec, sqlite, sql, tool, scripts")),
        }
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

/// What the operator says about the network for all scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkPolicy {
    /// Whether authored scripts reach public hosts that no grant names.
    pub public: bool,
    /// What no script reaches, whatever it was granted.
    pub deny: Vec<NetworkTarget>,
}

impl Default for NetworkPolicy {
    fn default() -> Self {
        Self { public: true, deny: Vec::new() }
    }
}

/// What a script may do, and where its operator would allow more.
#[derive(Debug, Clone, Default)]
pub struct GrantSet {
    grants: Vec<Grant>,
    /// Public hosts may be reached without being named.
    public_net: bool,
    /// What stays closed all the same.
    closed: Vec<NetworkTarget>,
    /// The script's own directory.
    dir: Option<PathBuf>,
    /// The folder that it shares with other scripts.
    shared: Option<PathBuf>,
    /// The configuration key whose `allow` would grant more.
    owner: String,
    /// Commands that the script's author says it runs.
    declared: Vec<String>,
}

impl GrantSet {
    /// What an authored script has: its directory, public hosts, `grants`.
    pub fn for_authored_script(owner: impl Into<String>, dir: PathBuf, grants: Vec<Grant>) -> Self {
        let owner = owner.into();
        Self { grants, public_net: true, dir: Some(dir), owner, ..Self::default() }
    }

    /// What a script has while it loads: its directory, nothing else.
    pub fn for_loading_script(owner: impl Into<String>, dir: PathBuf) -> Self {
        Self { public_net: false, ..Self::for_authored_script(owner, dir, Vec::new()) }
    }

    /// What an agent's script has: `grants`, and a directory if the operator
    /// names one. Nobody but the operator says which commands it runs.
    pub fn for_agent_script(
        owner: impl Into<String>,
        dir: Option<PathBuf>,
        grants: Vec<Grant>,
    ) -> Self {
        let none = Self { owner: owner.into(), dir, ..Self::default() };
        none.for_test(&grants)
    }

    /// The same, under the operator's rules for all scripts.
    #[must_use]
    pub fn with_network_policy(mut self, network: &NetworkPolicy) -> Self {
        self.public_net &= network.public;
        self.closed.clone_from(&network.deny);
        self
    }

    /// Whether anything of the kind is granted: `net`, `env`, `exec`, `tool`; for `fs`
    /// and `sqlite`, whether there is a directory to work in.
    pub fn has_kind(&self, kind: &str) -> bool {
        let is = |grant: &Grant| match grant {
            Grant::Net(_) => kind == "net",
            Grant::Env(_) => kind == "env",
            Grant::Exec(_) => kind == "exec",
            Grant::Tool(_) => kind == "tool",
            _ => false,
        };
        match kind {
            "fs" | "sqlite" | "sql" => self.dir.is_some(),
            _ => self.public_net && kind == "net" || self.grants.iter().any(is),
        }
    }

    /// Whether there is nothing to act with but other tools.
    pub fn only_calls_tools(&self) -> bool {
        let is_call = |grant: &Grant| {
            matches!(grant, Grant::Tool(_) | Grant::ScriptsWrite | Grant::ScriptsWriteAll)
        };
        !self.public_net && self.dir.is_none() && self.grants.iter().all(is_call)
    }

    /// The configuration key whose `allow` would grant more.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The same, for a script whose author says which commands it runs.
    #[must_use]
    pub fn with_declared_commands(mut self, commands: Vec<String>) -> Self {
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
    pub fn check_url(&self, what: &str, url: &Url) -> Result<AllowedUrl> {
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
        let address = match host {
            Host::Ipv4(ip) => Some(ip.into()),
            Host::Ipv6(ip) => Some(ip.into()),
            Host::Domain(_) => None,
        };
        // Some names mean this machine or its network: those are no public hosts.
        let local = matches!(host, Host::Domain(domain) if is_local_name(domain));
        let name = normalize_host(&host);
        let reach = self.network_reach(&name, port, !local);
        match self.check_reach(&reach, &name, port, address) {
            ReachVerdict::Yes => Ok(AllowedUrl { url: url.clone(), reach }),
            ReachVerdict::No => Err(self.network_denied_problem(what, &name, url.port())),
            ReachVerdict::Never => Err(self.network_closed_problem(what, &name)),
        }
    }

    fn network_reach(&self, name: &str, port: u16, public: bool) -> NetworkReach {
        let nets = || {
            self.grants.iter().filter_map(|grant| match grant {
                Grant::Net(net) => Some(net),
                _ => None,
            })
        };
        let except = self.closed.iter().filter_map(|net| net.address_as_range(port)).collect();
        if nets().any(|net| net.is_exactly(name, port)) {
            return NetworkReach { named: true, except, ..NetworkReach::default() };
        }
        NetworkReach {
            named: false,
            public: public && (self.public_net || nets().any(|net| net.matches_host(name, port))),
            ranges: nets().filter_map(|net| net.address_range(port)).collect(),
            except,
        }
    }

    /// What can be said before DNS is asked. Where a name leads is checked after that,
    /// by whoever holds the reach.
    fn check_reach(
        &self,
        reach: &NetworkReach,
        name: &str,
        port: u16,
        address: Option<IpAddr>,
    ) -> ReachVerdict {
        if self.closed.iter().any(|net| net.matches_host(name, port)) {
            return ReachVerdict::Never;
        }
        match address {
            Some(ip) => reach.check_address(ip),
            None if reach.allows_unresolved_name() || !reach.ranges.is_empty() => ReachVerdict::Yes,
            None => ReachVerdict::No,
        }
    }

    /// The Problem for what the operator closed for all scripts.
    pub fn network_closed_problem(&self, what: &str, host: &str) -> Problem {
        Problem::denied(format!(
            "{what} may not reach {host}, which network.deny closes for all scripts"
        ))
        .with_hint("if scripts are to reach it, take it out of deny in [network] in moonlark.toml")
    }

    /// The Problem for a name that DNS sent to an address scripts may not reach.
    pub fn network_denied_problem(&self, what: &str, host: &str, port: Option<u16>) -> Problem {
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let target = match port {
            Some(port) => format!("{bracketed}:{port}"),
            None => bracketed,
        };
        self.denial_problem(format!("{what} may not reach {target}"), &format!("net:{target}"))
    }

    pub fn check_env(&self, what: &str, name: &str) -> Result<AllowedEnv> {
        if self.grants.iter().any(|grant| matches!(grant, Grant::Env(allowed) if allowed == name)) {
            return Ok(AllowedEnv(name.to_owned()));
        }
        let name = shorten_text(name);
        Err(self.denial_problem(
            format!("{what} may not read the variable {name}"),
            &format!("env:{name}"),
        ))
    }

    /// The script's own directory, for reading.
    pub fn check_dir(&self, what: &str) -> Result<AllowedDir> {
        match &self.dir {
            Some(dir) => Ok(AllowedDir(dir.clone())),
            None => Err(Problem::denied(format!("{what} has no directory to work in"))),
        }
    }

    /// The folder that all scripts of its kind are in, where that is known:
    /// what lies there for several of them. Otherwise the script's own.
    pub fn check_shared_dir(&self, what: &str) -> Result<AllowedDir> {
        match &self.shared {
            Some(dir) => Ok(AllowedDir(dir.clone())),
            None => self.check_dir(what),
        }
    }

    /// The same, in a folder of scripts that share what lies there.
    #[must_use]
    pub fn with_shared_dir(mut self, dir: PathBuf) -> Self {
        self.shared = Some(dir);
        self
    }

    /// The script's own directory, for writing.
    pub fn check_writable_dir(&self, what: &str) -> Result<AllowedDir> {
        let dir = self.check_dir(what)?;
        if self.grants.contains(&Grant::FsWrite) {
            return Ok(dir);
        }
        Err(self.denial_problem(format!("{what} may not write files"), "fs:write"))
    }

    /// May `command` be run? Its author has to say so, and the operator.
    pub fn check_exec(&self, what: &str, command: &str) -> Result<AllowedExec> {
        if !is_command(command) {
            let shown = shorten_text(command);
            return Err(Problem::denied(format!(
                "{what} may not run {shown:?}: this is neither a bare name nor an absolute path"
            ))
            .with_hint("name the command as it is in allowed_exec, such as \"git\""));
        }
        if !self.declared.iter().any(|declared| declared == command) {
            return Err(Problem::denied(format!(
                "{what} may not run {command}, which the script does not declare"
            ))
            .with_hint(format!("add \"{command}\" to allowed_exec in the script")));
        }
        if self
            .grants
            .iter()
            .any(|grant| matches!(grant, Grant::Exec(allowed) if allowed == command))
        {
            return Ok(AllowedExec(command.to_owned()));
        }
        Err(self
            .denial_problem(format!("{what} may not run {command}"), &format!("exec:{command}")))
    }

    /// May the SQLite database at `path` be read? `resolve` says where a path
    /// leads once every link is followed, and nothing where it leads nowhere;
    /// only what that says is compared.
    pub fn check_database(
        &self,
        what: &str,
        path: &str,
        resolve: impl Fn(&Path) -> Option<PathBuf>,
    ) -> Result<AllowedDatabase> {
        let AllowedDir(dir) = self.check_dir(what)?;
        // What leads nowhere is judged by its words, so that a denial does not
        // tell what exists elsewhere.
        let real = |path: &Path| resolve(path).unwrap_or_else(|| normalize_path(path));
        let wanted = real(&dir.join(path));
        let named =
            |grant: &Grant| matches!(grant, Grant::Sqlite(file) if real(&dir.join(file)) == wanted);
        if wanted.starts_with(real(&dir)) || self.grants.iter().any(named) {
            return Ok(AllowedDatabase(wanted));
        }
        let shown = shorten_text(path);
        Err(self.denial_problem(
            format!("{what} may not open {shown}, which is outside the script's directory"),
            &format!("sqlite:{shown}"),
        ))
    }

    /// May the database server at `host` be reached? It has to be named, or in a range
    /// that is, also when it is public. A host that begins with `/` is a directory with a Unix
    /// socket in it.
    pub fn check_server(&self, what: &str, host: &str, port: u16) -> Result<AllowedServer> {
        let socket = host.starts_with('/');
        let address: Option<IpAddr> = host.parse().ok();
        let name = match (address, socket) {
            (Some(ip), _) => ip.to_string(),
            (None, true) => normalize_socket_dir(host).to_owned(),
            (None, false) => host.trim_end_matches('.').to_ascii_lowercase(),
        };
        let mut reach = self.network_reach(&name, port, false);
        if socket {
            reach.ranges.clear();
        }
        match self.check_reach(&reach, &name, port, address) {
            ReachVerdict::Yes => Ok(AllowedServer { host: name, port, reach }),
            ReachVerdict::No => {
                Err(self.network_denied_problem(what, &name, (!socket).then_some(port)))
            }
            ReachVerdict::Never => Err(self.network_closed_problem(what, &name)),
        }
    }

    /// May databases be changed?
    pub fn check_sql_write(&self, what: &str) -> Result<AllowedWrite> {
        if self.grants.contains(&Grant::SqlWrite) {
            return Ok(AllowedWrite(()));
        }
        Err(self.denial_problem(format!("{what} may not change databases"), "sql:write"))
    }

    /// May the script call `tool`? Its further names are looked at when the first
    /// is not enough.
    pub fn check_tool(&self, tool: &str, further: impl FnOnce() -> Vec<String>) -> Result<()> {
        let named = |name: &str| {
            self.grants.iter().any(
                |grant| matches!(grant, Grant::Tool(pattern) if matches_pattern(pattern, name)),
            )
        };
        if named(tool) || further().iter().any(|name| named(name)) {
            return Ok(());
        }
        Err(self.denial_problem(format!("the script may not call {tool}"), &format!("tool:{tool}")))
    }

    fn denial_problem(&self, message: String, grant: &str) -> Problem {
        Problem::denied(message)
            .with_hint(format!("add \"{grant}\" to allow for {} in moonlark.toml", self.owner))
    }
}

/// Proof that a script may reach this address.
#[derive(Debug, Clone)]
pub struct AllowedUrl {
    url: Url,
    reach: NetworkReach,
}

impl AllowedUrl {
    pub fn url(&self) -> &Url {
        &self.url
    }

    pub fn reach(&self) -> &NetworkReach {
        &self.reach
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
pub struct AllowedDir(PathBuf);

impl AllowedDir {
    pub fn path(&self) -> &Path {
        &self.0
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
    reach: NetworkReach,
}

impl AllowedServer {
    /// A name, an address, or the directory of a Unix socket.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn reach(&self) -> &NetworkReach {
        &self.reach
    }
}

/// Proof that a script may change databases.
#[derive(Debug, Clone, Copy)]
pub struct AllowedWrite(());

/// `path` without `.` and `..`, by its words alone.
fn normalize_path(path: &Path) -> PathBuf {
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
