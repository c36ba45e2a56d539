//! `moonlark completions`

use clap::Args;
use clap_complete::Shell;

#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

impl CompletionsArgs {
    pub(crate) fn run(self, command: &mut clap::Command) {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, command, "moonlark", &mut script);
        super::print_text(String::from_utf8_lossy(&script).trim_end());
    }
}
