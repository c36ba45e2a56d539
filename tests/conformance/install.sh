#!/bin/sh
# Install the official conformance suite, which conformance.rs runs, into
# target/conformance.
#
#     tests/conformance/install.sh            install what is missing or outdated
#     tests/conformance/install.sh --check    only say whether that is needed
#
# What is installed is pinned by the files beside this one. The suite needs a
# newer node than 20; it comes from npm too, as a package for this platform. So
# what is needed here is any node with npm.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=$here/../../target/conformance

fail() {
    echo "tests/conformance/install.sh: $1" >&2
    exit 1
}

# What the installation depends on: the pins, and the platform.
wanted=$({
    uname -sm
    cat "$here/install.sh" "$here/package.json" "$here/package-lock.json"
} | cksum)

if [ "$(cat "$target/stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi
if [ "${1-}" = --check ]; then
    fail "the conformance suite is missing or outdated in target/conformance; run tests/conformance/install.sh"
fi

command -v npm >/dev/null || fail "npm is not installed; it comes with node"

rm -rf "$target"
mkdir -p "$target"
cp "$here/package.json" "$here/package-lock.json" "$target/"
(cd "$target" && npm ci --ignore-scripts --engine-strict=false --no-audit --no-fund --loglevel=error)
[ -x "$target/node_modules/.bin/node" ] || fail "there is no package of node for $(uname -sm)"
echo "$wanted" >"$target/stamp"
