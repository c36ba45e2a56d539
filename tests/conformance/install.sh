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
. "$here/../install-lib.sh"

begin "${1-}" "the official conformance suite" "$(uname -sm)" package.json package-lock.json
clear_target
npm_packages --engine-strict=false
[ -x "$target/node_modules/.bin/node" ] || fail "there is no package of node for $(uname -sm)"
finish
