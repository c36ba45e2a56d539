#!/bin/sh
# Install Prism, which judges requests by their OpenAPI document for
# openapi_judged.rs, into target/prism.
#
#     tests/prism/install.sh            install what is missing or outdated
#     tests/prism/install.sh --check    only say whether that is needed
#
# What is installed is pinned by the files beside this one. Needs node with npm.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../install-lib.sh"

command -v node >/dev/null || fail "node is not installed; it is needed in version 20 or newer"
begin "${1-}" "Prism" "" package.json package-lock.json
clear_target
npm_packages
finish
