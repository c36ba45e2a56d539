#!/bin/sh
# Install the official MCP clients, which clients.rs runs, into target/clients.
#
#     tests/clients/install.sh            install what is missing or outdated
#     tests/clients/install.sh --check    only say whether that is needed
#
# What is installed is pinned by the files beside this one. Needs python3 (3.10
# or newer) with venv, and node (20 or newer) with npm.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=$here/../../target/clients

fail() {
    echo "tests/clients/install.sh: $1" >&2
    exit 1
}

command -v python3 >/dev/null || fail "python3 is not installed; it is needed in version 3.10 or newer"
command -v node >/dev/null || fail "node is not installed; it is needed in version 20 or newer"

# What the installation depends on: the pins, and what runs them.
wanted=$({
    python3 --version
    node --version
    cat "$here/install.sh" "$here/requirements.txt" "$here/package.json" "$here/package-lock.json"
} | python3 -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())')

if [ "$(cat "$target/stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi
if [ "${1-}" = --check ]; then
    fail "the MCP clients are missing or outdated in target/clients; run tests/clients/install.sh"
fi

command -v npm >/dev/null || fail "npm is not installed; it comes with node"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$(python3 --version) is too old; 3.10 or newer is needed"
node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' ||
    fail "node $(node --version) is too old; 20 or newer is needed"
python3 -c 'import venv, ensurepip' 2>/dev/null ||
    fail "python3 has no venv module; the package is often called python3-venv"

rm -rf "$target"
mkdir -p "$target"
python3 -m venv "$target/python"
"$target/python/bin/python" -m pip install \
    --quiet --disable-pip-version-check --require-hashes --requirement "$here/requirements.txt"
cp "$here/package.json" "$here/package-lock.json" "$target/"
# The Inspector asks for a newer node than 20; its command line runs on that too.
(cd "$target" && npm ci --ignore-scripts --engine-strict=false --no-audit --no-fund --loglevel=error)
# Programs elsewhere find the packages through this.
echo "export const load = (name) => import(name);" >"$target/load.mjs"
echo "$wanted" >"$target/stamp"
