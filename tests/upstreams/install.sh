#!/bin/sh
# Install real MCP servers, which upstreams.rs runs behind Moonlark, into
# target/upstreams.
#
#     tests/upstreams/install.sh            install what is missing or outdated
#     tests/upstreams/install.sh --check    only say whether that is needed
#
# What is installed is pinned by the files beside this one. Needs python3 (3.10
# or newer) with venv, and node (20 or newer) with npm.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=$here/../../target/upstreams

fail() {
    echo "tests/upstreams/install.sh: $1" >&2
    exit 1
}

command -v python3 >/dev/null || fail "python3 is not installed; it is needed in version 3.10 or newer"
command -v node >/dev/null || fail "node is not installed; it is needed in version 20 or newer"

# What the installation depends on: the pins, and what runs them.
wanted=$({
    python3 --version
    node --version
    cat "$here/install.sh" "$here/requirements.txt" "$here/requirements-mcp1.txt" \
        "$here/package.json" "$here/package-lock.json"
} | python3 -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())')

if [ "$(cat "$target/stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi
if [ "${1-}" = --check ]; then
    fail "the MCP servers are missing or outdated in target/upstreams; run tests/upstreams/install.sh"
fi

command -v npm >/dev/null || fail "npm is not installed; it comes with node"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$(python3 --version) is too old; 3.10 or newer is needed"
node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' ||
    fail "node $(node --version) is too old; 20 or newer is needed"
python3 -c 'import venv, ensurepip' 2>/dev/null ||
    fail "python3 has no venv module; the package is often called python3-venv"

python_packages() {
    python3 -m venv "$target/$1"
    "$target/$1/bin/python" -m pip install \
        --quiet --disable-pip-version-check --require-hashes --requirement "$here/$2"
}

rm -rf "$target"
mkdir -p "$target"
python_packages python requirements.txt
# Some servers do not run with the second version of the SDK.
python_packages python-mcp1 requirements-mcp1.txt
cp "$here/package.json" "$here/package-lock.json" "$target/"
(cd "$target" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
echo "$wanted" >"$target/stamp"
