//! `moonlark`: see `cli` for the commands.

#![forbid(unsafe_code)]

#[global_allocator]
static GLOBAL_ALLOCATOR: moonlark_child::ProcessAllocator = moonlark_child::ProcessAllocator;

fn main() -> std::process::ExitCode {
    // Hidden modes of the same binary come before everything else.
    moonlark_child::supervise_if_asked();
    moonlark_knowledge::run_pdf_reader_if_requested();
    moonlark_luau::check::check_scripts_if_asked(moonlark_host::host_modules);
    if std::env::args_os()
        .nth(1)
        .is_some_and(|mode| mode == moonlark_starlark::worker::WORKER_MODE_ARG)
    {
        return moonlark_starlark::worker::run_worker(moonlark_host::host_modules());
    }
    moonlark::cli::main()
}
