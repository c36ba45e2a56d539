//! `moonlark completions`

use clap::Args;
use clap_complete::Shell;

#[derive(Args)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, command: &mut clap::Command) {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, command, "moonlark", &mut script);
        super::print_text(String::from_utf8_lossy(&script).trim_end());
    }
}
