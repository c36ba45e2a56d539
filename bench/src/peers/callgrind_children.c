/* Loaded into Moonlark when callgrind counts its instructions.
 *
 * Moonlark starts its workers by /proc/self/exe, which is valgrind there: they are started by
 * the path of the program instead. And it ends them with SIGKILL, which leaves callgrind no time
 * to write what it counted: they get SIGTERM.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Read before anything can clear the environment. */
static const char *program;

__attribute__((constructor)) static void remember_program(void)
{
    program = getenv("BENCH_PROGRAM");
}

static const char *program_path(const char *path)
{
    return program != NULL && strcmp(path, "/proc/self/exe") == 0 ? program : path;
}

typedef int spawn_function(pid_t *, const char *, const posix_spawn_file_actions_t *,
                           const posix_spawnattr_t *, char *const[], char *const[]);

int posix_spawnp(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const arguments[],
                 char *const environment[])
{
    spawn_function *next = (spawn_function *)dlsym(RTLD_NEXT, "posix_spawnp");
    return next(pid, program_path(path), actions, attributes, arguments, environment);
}

int execvp(const char *path, char *const arguments[])
{
    int (*next)(const char *, char *const[]) =
        (int (*)(const char *, char *const[]))dlsym(RTLD_NEXT, "execvp");
    return next(program_path(path), arguments);
}

int kill(pid_t pid, int signal)
{
    return (int)syscall(SYS_kill, pid, signal == SIGKILL ? SIGTERM : signal);
}
