//! A PostgreSQL server of our own: a new cluster in a temporary folder, on a
//! Unix socket and a port of this machine. It ends with the test, however that
//! ends.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{PATIENCE, repo};

pub const PASSWORD: &str = "correct-horse-battery";

pub struct Postgres {
    bin: PathBuf,
    dir: tempfile::TempDir,
    owner: Option<(u32, u32)>,
    pub port: u16,
    child: Option<Child>,
}

impl Postgres {
    pub fn start() -> Postgres {
        let script = repo().join("tests/postgres/install.sh");
        assert!(Command::new(&script).arg("--check").status().unwrap().success(), "run {script:?}");
        let bin = repo().join("target/postgres/bin").canonicalize().unwrap();
        let dir = tempfile::Builder::new().prefix("pg").tempdir().unwrap();
        let mut server = Postgres { bin, dir, owner: other_user(), port: 0, child: None };
        if let Some((user, group)) = server.owner {
            chown(server.dir.path(), Some(user), Some(group)).unwrap();
        }
        server.write("password", PASSWORD);
        let made = server
            .program("initdb")
            .args(["--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"])
            .args(["--auth-local=trust", "--auth-host=scram-sha-256"])
            .arg("--pwfile")
            .arg(server.path("password"))
            .arg("--pgdata")
            .arg(server.path("data"))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // Somebody else may take the port in between.
        for _ in 0..10 {
            server.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if server.launch() {
                return server;
            }
        }
        panic!("the server does not start on any port");
    }

    pub fn socket_dir(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }

    /// End it as an administrator does: sessions are thrown out.
    pub fn stop(&mut self) {
        self.end(libc::SIGINT);
    }

    pub fn start_again(&mut self) {
        assert!(self.launch(), "the server does not start again");
    }

    /// Turn on TLS with this certificate, from the next start on.
    pub fn offer_tls(&self, certificate: &str, key: &str) {
        self.write("server.crt", certificate);
        self.write("server.key", key);
        let settings = self.path("data/postgresql.auto.conf");
        let mut text = std::fs::read_to_string(&settings).unwrap();
        for (name, file) in [("ssl_cert_file", "server.crt"), ("ssl_key_file", "server.key")] {
            text.push_str(&format!("{name} = '{}'\n", self.path(file).display()));
        }
        text.push_str("ssl = on\n");
        std::fs::write(settings, text).unwrap();
    }

    /// Whether it says that it is ready; otherwise it has ended.
    fn launch(&mut self) -> bool {
        let mut command = self.program("postgres");
        command
            .arg("-D")
            .arg(self.path("data"))
            .arg("-k")
            .arg(self.dir.path())
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(["-F", "-c", "log_destination=stderr", "-c", "logging_collector=off"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        // SAFETY: prctl is async-signal-safe and touches no memory of ours.
        #[cfg(target_os = "linux")]
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGQUIT);
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.contains("ready to accept connections"));
        // It must never wait for somebody to read what it says.
        std::thread::spawn(move || lines.count());
        if !ready {
            let _ = child.wait();
            return false;
        }
        self.child = Some(child);
        true
    }

    fn end(&mut self, signal: i32) {
        let Some(mut child) = self.child.take() else { return };
        // SAFETY: the process is our child and was not waited for.
        unsafe { libc::kill(child.id() as i32, signal) };
        let started = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if started.elapsed() > PATIENCE {
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command.env_clear().env("LC_ALL", "C").current_dir(self.dir.path()).stdin(Stdio::null());
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file that only the server's user reads.
    fn write(&self, name: &str, text: &str) {
        let path: &Path = &self.path(name);
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        if let Some((user, group)) = self.owner {
            chown(path, Some(user), Some(group)).unwrap();
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once: nothing of it is needed any more.
        self.end(libc::SIGQUIT);
    }
}

/// PostgreSQL does not run as root. Then it is nobody's.
fn other_user() -> Option<(u32, u32)> {
    // SAFETY: both calls only return; the entry is read before any other call.
    unsafe {
        if libc::geteuid() != 0 {
            return None;
        }
        let entry = libc::getpwnam(c"nobody".as_ptr());
        assert!(!entry.is_null(), "there is no user nobody to run the server as");
        Some(((*entry).pw_uid, (*entry).pw_gid))
    }
}
