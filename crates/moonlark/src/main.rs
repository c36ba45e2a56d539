//! `moonlark`: see `cli` for the commands.

#[global_allocator]
static ALLOCATOR: moonlark_starlark::worker::memory::Allocator =
    moonlark_starlark::worker::memory::Allocator;

fn main() -> std::process::ExitCode {
    // Hidden modes of the same binary come before everything else.
    moonlark_child::supervise_if_asked();
    moonlark_knowledge::read_if_asked();
    moonlark_luau::check::check_scripts_if_asked(moonlark_host::all);
    if std::env::args_os().nth(1).is_some_and(|mode| mode == moonlark_starlark::worker::MODE) {
        return moonlark_starlark::worker::main(moonlark_host::all());
    }
    moonlark_starlark::worker::memory::return_freed_memory();
    moonlark::cli::main()
}
