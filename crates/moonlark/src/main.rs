//! `moonlark`: see `cli` for the commands.

fn main() -> std::process::ExitCode {
    moonlark::cli::main()
}
