#!/usr/bin/env python3
"""Install the clients of the tier into target/all-clients, one folder for each.

    tests/all_clients/install.py [PART OF A NAME…]           install what is missing or outdated
    tests/all_clients/install.py --lock [PART OF A NAME…]    choose versions anew, and write the locks

What is installed is pinned by requirements.txt or package-lock.json in the client's folder.
Needs Python 3.11 or newer with venv, and npm; uv and a Node that is new enough for all are
installed as well.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent.parent / "target" / "all-clients"
UV_VERSION = "0.13.8"
NODE_VERSION = "22.23.3"
NPM_OPTIONS = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]


class Installation:
    """Where things are once they are installed."""

    def folder(self, name):
        return TARGET / name

    def python(self, name):
        return TARGET / name / "bin" / "python"

    def node(self):
        return TARGET / "node" / "node_modules" / node_package() / "bin" / "node"

    def bin(self, name, program):
        return TARGET / name / "node_modules" / ".bin" / program

    def native_program(self, name, program):
        """A program that comes as a package for this platform, of which the plainest is taken."""
        platform_name = node_package().removeprefix("node-")
        found = (TARGET / name / "node_modules").glob(f"**/*-{platform_name}*/**/{program}")
        return min((path for path in found if path.is_file()), key=lambda path: len(str(path)))

    def home(self, name):
        """A home folder of its own, so that no client finds this machine's settings."""
        home = TARGET / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        return home

    def version(self, folder, package):
        lock = folder / "requirements.txt"
        if lock.exists():
            for line in lock.read_text().splitlines():
                if line.startswith(f"{package}=="):
                    return line.split("==")[1].split(" ")[0]
        lock = json.loads((folder / "package-lock.json").read_text())
        return lock["packages"][f"node_modules/{package}"]["version"]


def main():
    arguments = sys.argv[1:]
    lock = "--lock" in arguments
    names = [a for a in arguments if not a.startswith("--")]
    folders = sorted(p.parent for p in HERE.glob("*/*/requirements.in"))
    folders += sorted(p.parent for p in HERE.glob("*/*/package.json"))
    TARGET.mkdir(parents=True, exist_ok=True)
    install_uv()
    install_node()
    for folder in folders:
        if not names or any(name in folder.name for name in names):
            if lock:
                write_lock(folder)
            install_client(folder)


def install_client(folder):
    target = TARGET / folder.name
    is_python = (folder / "requirements.txt").exists()
    pins = ["requirements.txt"] if is_python else ["package.json", "package-lock.json"]

    def fill():
        if is_python:
            run([uv(), "venv", "--quiet", "--python", sys.executable, target])
            python = target / "bin" / "python"
            run([uv(), "pip", "install", "--quiet", "--python", python, "-r", folder / "requirements.txt"])
        else:
            target.mkdir()
            for pin in pins:
                shutil.copy(folder / pin, target)
            # Not `ci`: it refuses a lock that lacks packages of other platforms.
            run(["npm", "install", *NPM_OPTIONS], cwd=target, env=node_environment())

    install(target, [(folder / pin).read_bytes() for pin in pins], fill)


def install_uv():
    target = TARGET / "uv"

    def fill():
        run([sys.executable, "-m", "venv", target])
        run([target / "bin" / "python", "-m", "pip", "install", "--quiet", f"uv=={UV_VERSION}"])

    install(target, [UV_VERSION.encode()], fill)


def install_node():
    target = TARGET / "node"

    def fill():
        target.mkdir()
        (target / "package.json").write_text('{"private": true}')
        run(["npm", "install", *NPM_OPTIONS, f"{node_package()}@{NODE_VERSION}"], cwd=target)

    install(target, [NODE_VERSION.encode()], fill)


def install(target, pins, fill):
    """Fill a folder if it was not filled to the end from the same pins."""
    wanted = hashlib.sha256(b"\0".join([sys.version.encode(), *pins])).hexdigest()
    stamp = target / "stamp"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"installing {target.name}", flush=True)
    shutil.rmtree(target, ignore_errors=True)
    fill()
    stamp.write_text(wanted)


def write_lock(folder):
    if (folder / "requirements.in").exists():
        lock = folder / "requirements.txt"
        options = "--quiet --universal --python-version 3.11 --no-header --no-annotate --upgrade".split()
        run([uv(), "pip", "compile", *options, folder / "requirements.in", "-o", lock])
        return
    lock = folder / "package-lock.json"
    lock.unlink(missing_ok=True)
    run(["npm", "install", "--package-lock-only", *NPM_OPTIONS], cwd=folder, env=node_environment())
    # Where a package comes from is for whoever installs it to say.
    value = json.loads(lock.read_text())
    value["name"] = folder.name
    for package in value["packages"].values():
        for key in ("resolved", "funding"):
            package.pop(key, None)
    lock.write_text(json.dumps(value, indent=1) + "\n")


def uv():
    return TARGET / "uv" / "bin" / "uv"


def node_package():
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"node-{platform.system().lower()}-{machine}"


def node_environment():
    folder = TARGET / "node" / "node_modules" / node_package() / "bin"
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def run(command, **options):
    environment = options.pop("env", os.environ)
    # uv reads this name for what pip and npm are told by others.
    certificates = os.environ.get("PIP_CERT")
    if certificates:
        environment = {"SSL_CERT_FILE": certificates, **environment}
    subprocess.run([str(part) for part in command], check=True, env=environment, **options)


if __name__ == "__main__":
    main()
