"""Collects the texts that the model learns from: packages to records.

    python collect.py WORK-FOLDER NPM CRATES CRATES-INDEX PYPI DEBIAN

After the folder come the addresses to download from. Takes the packages of packages.txt, each held against the digest it
had, and the descriptions of Debian's packages, and leaves `records.jsonl.gz` in the folder. A record is
[source, kind, name, lead, body, code]: what something is called, what it is in one
sentence, what else is said about it, and how it is written, any of which may be empty.
README.md says what is taken from where, and what is kept out.
"""

import gzip
import hashlib
import io
import json
import lzma
import re
import sys
import tarfile
import time
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urljoin

WORK = Path(sys.argv[1])
NPM, CRATES, CRATES_INDEX, PYPI, DEBIAN_AT = (address.rstrip("/") for address in sys.argv[2:])
DEBIAN = DEBIAN_AT + "/dists/bookworm/main/i18n/Translation-en.xz"

# Records of one package, and letters of each field.
MOST = 2500
LARGE = {"pypi:botocore": 16000, "pypi:google-api-python-client": 24000}
LETTERS = 900
LARGEST_ARCHIVE = 20_000_000
PERMISSIVE = re.compile(r"\b(mit|bsd|apache|isc|unlicense|zlib|cc0|0bsd|psf|python software|hpnd|wordnet)\b", re.I)
RESTRICTIVE = re.compile(r"gpl|general public|proprietary|non-?commercial|-nc\b|bsl|business source|elastic|commons clause", re.I)
# What search is measured on, or comes near it: none of it may be learned.
KEPT_OUT = re.compile(r"\bmcp\b|model context protocol|anthropic|claude|octokit|api\.github|libafl", re.I)


def main():
    lines = (Path(__file__).parent / "packages.txt").read_text().split("\n")
    wanted = [line.split() for line in lines if line and not line.startswith("#")]
    taken, count = [], 0
    with gzip.open(WORK / "records.jsonl.gz", "wt", compresslevel=4) as out, ThreadPoolExecutor(6) as pool:
        def put(source, records):
            nonlocal count
            # By their hashes: some of all, and the same every time.
            records = sorted({tuple(it) for it in records}, key=lambda it: hashlib.sha1(repr(it).encode()).digest())
            most = None if source == "debian" else LARGE.get(source, MOST)
            for it in records[:most]:
                if not KEPT_OUT.search(" ".join(it)):
                    out.write(json.dumps([source, *it], ensure_ascii=True) + "\n")
                    count += 1
        put("debian", debian())
        window = []
        for line in wanted + [None] * 8:
            if line:
                window.append((line, pool.submit(fetched, *line)))
            if len(window) > 7 or (line is None and window):
                (kind, name, *_), future = window.pop(0)
                try:
                    found = future.result()
                    if not found:
                        print("not permissive or too large:", kind, name, flush=True)
                        continue
                    version, licence, digest, content = found
                    put(f"{kind}:{name}", records_of(kind, name, files_of(content)))
                    taken.append(f"{kind} {name} {version} {digest} {licence}")
                except Exception as error:
                    print("passed over:", kind, name, error, flush=True)
                if len(taken) % 50 == 0:
                    print(len(taken), count, flush=True)
    (WORK / "taken.txt").write_text("\n".join(taken) + "\n")
    print(len(taken), "packages,", count, "records")


# Packages.

def get(url):
    for wait in (1, 4, 10, None):
        try:
            return urllib.request.urlopen(url, timeout=60).read()
        except OSError:
            if wait is None:
                raise
            time.sleep(wait)


def fetched(kind, name, version=None, digest=None, *_):
    """Version, licence, digest and content of a package, if its licence is permissive."""
    if kind == "pypi":
        about = json.loads(get(f"{PYPI}/pypi/{name}/{version + '/' if version else ''}json"))
        info = about["info"]
        classifiers = [it for it in info.get("classifiers") or [] if it.startswith("License")]
        licence = " ".join([info.get("license_expression") or "", (info.get("license") or "")[:50], *classifiers])
        files = [it for it in about["urls"] if it["size"] < LARGEST_ARCHIVE and (
            it["filename"].endswith((".tar.gz", ".zip", ".whl")))]
        files.sort(key=lambda it: (not it["filename"].endswith((".tar.gz", ".zip")), it["filename"]))
        if not files:
            return None
        url, version = urljoin(f"{PYPI}/simple/{name}/", files[0]["url"]), info["version"]
    elif kind == "npm":
        about = json.loads(get(f"{NPM}/{name.replace('/', '%2f')}/{version or 'latest'}"))
        licence, url, version = str(about.get("license")), about["dist"]["tarball"], about["version"]
    else:
        at = name.lower()
        folder = {1: "1", 2: "2", 3: f"3/{at[0]}"}.get(len(name), f"{at[:2]}/{at[2:4]}")
        if not version:
            lines = get(f"{CRATES_INDEX}/{folder}/{at}").decode().strip().split("\n")
            version = [it["vers"] for it in map(json.loads, lines) if not it["yanked"]][-1]
        url, licence = f"{CRATES}/{name}/{name}-{version}.crate", None
    content = get(url)
    found = hashlib.sha256(content).hexdigest()
    if digest and digest != found:
        sys.exit(f"{kind} {name} {version} is another file than it was: {found}")
    if kind == "crates":
        manifest = re.search(rb'^license\s*=\s*"([^"]*)"', dict(files_of(content)).get("Cargo.toml", b""), re.M)
        licence = manifest.group(1).decode() if manifest else ""
    licence = " ".join(licence.split())
    if not PERMISSIVE.search(licence) or (RESTRICTIVE.search(licence) and " or " not in licence.lower()):
        return None
    return version, licence[:80], found, content


def files_of(content):
    """Names, without the folder of the package, and contents."""
    if content[:2] == b"PK":
        archive = zipfile.ZipFile(io.BytesIO(content))
        for it in archive.infolist():
            if it.file_size < 4_000_000:
                yield it.filename, archive.read(it)
    else:
        archive = tarfile.open(fileobj=io.BytesIO(content))
        for it in archive:
            if it.isfile() and it.size < 4_000_000:
                yield it.name.split("/", 1)[-1], archive.extractfile(it).read()


def records_of(kind, name, files):
    found, read = [], 0
    for path, content in files:
        if re.search(r"(^|/)(tests?|testing|locale|vendor|third_party|_vendor|changelog|changes|history|license|authors)[^/]*(/|\.)", path, re.I):
            continue
        if read > 15_000_000 or len(found) > 60_000:
            break
        if path.endswith((".json", ".json.gz")) and name in ("botocore", "google-api-python-client"):
            content = gzip.decompress(content) if path.endswith(".gz") else content
            found.extend(operations(path, json.loads(content)))
            continue
        if not path.endswith((".py", ".md", ".rst", ".txt", ".rs", ".d.ts")) or len(content) > 1_500_000:
            continue
        read += len(content)
        text = content.decode("utf8", "replace")
        if path.endswith(".py"):
            found.extend(python(text))
        elif path.endswith(".rs"):
            found.extend(rust(text))
        elif path.endswith(".d.ts"):
            found.extend(typescript(text))
        else:
            found.extend(sections(text, path))
    return found


# What is written in files.

def record(kind, name, lead, body, code=""):
    cut = lambda text: " ".join(text.split())[:LETTERS]
    return (kind, name[:120], cut(lead)[:300], cut(body), code[:LETTERS])


def plain(text):
    """Without the marks of reStructuredText, Markdown and HTML."""
    text = re.sub(r"<[a-zA-Z/][^>]{0,200}>", " ", text)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", " ", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r":[\w:]+:`~?([^`<]*)(<[^>]*>)?`", r"\1", text)
    text = re.sub(r"https?://\S+", " ", text)
    return re.sub(r"[`*]+|^\s*\.\. .*$", "", text, flags=re.M)


def is_prose(text):
    letters = sum(it.isascii() and (it.isalpha() or it == " ") for it in text)
    return len(text) > 15 and letters > 0.8 * len(text)


def split_lead(text):
    """The first sentence, and the rest."""
    first = re.split(r"\n\s*\n", text.strip(), maxsplit=1)
    found = re.match(r"(.{15,300}?[.!?])(?=\s+[A-Z`\"(]|\s*$)", " ".join(first[0].split()))
    lead = found.group(1) if found else " ".join(first[0].split())[:300]
    rest = " ".join(first[0].split())[len(lead):] + "\n" + (first[1] if len(first) > 1 else "")
    return lead, rest


def python(text):
    pattern = r'^([ \t]*)(?:async )?(?:def|class) (\w+)(\((?:[^()]|\([^()]*\))*\))?[^\n:]*:[ \t]*\n\s+[rR]?"""(.*?)"""'
    for it in re.finditer(pattern, text, re.M | re.S):
        indent, name, arguments, doc = it.groups()
        lead, rest = split_lead(plain(doc))
        if not is_prose(lead) or name.startswith("test"):
            continue
        after = text[it.end():it.end() + 1500].split("\n")
        own = []
        for line in after[1:]:
            if line.strip() and len(line) - len(line.lstrip()) <= len(indent.expandtabs()):
                break
            own.append(line[len(indent):])
        yield record("py", name, lead, rest, f"def {name}{' '.join((arguments or '').split())[:200]}:\n" + "\n".join(own).strip("\n"))


def rust(text):
    for it in re.finditer(r"((?:^[ \t]*///[^\n]*\n)+)((?:[ \t]*#\[[^\n]*\n)*)([ \t]*)(pub[^\n]*?\b(?:fn|struct|enum|trait|const|type|mod) (\w+)[^\n]*)", text, re.M):
        doc = "\n".join(line.strip()[3:] for line in it.group(1).split("\n"))
        doc = re.sub(r"```.*?(```|$)", " ", doc, flags=re.S)
        lead, rest = split_lead(plain(re.sub(r"\[`?([^\]`]*)`?\](\[[^\]]*\])?", r"\1", doc)))
        if not is_prose(lead):
            continue
        indent, own = len(it.group(3)), [it.group(4)]
        for line in text[it.end():it.end() + 1500].split("\n")[1:]:
            if line.strip() and len(line) - len(line.lstrip()) <= indent:
                break
            own.append(line[indent:])
        yield record("rs", it.group(5), lead, rest, "\n".join(own))


def typescript(text):
    for it in re.finditer(r"/\*\*(.{15,3000}?)\*/\s*\n?[ \t]*([^\n]{3,300})", text, re.S):
        doc = "\n".join(line.strip().lstrip("*").strip() for line in it.group(1).split("\n"))
        doc, _, tags = re.sub(r"\{@\w+ ([^}]*)\}", r"\1", doc).partition("\n@")
        name = re.search(r"(?:function|class|interface|type|const|enum|namespace|readonly|static|get|set|export|declare)?\s*([A-Za-z_$][\w$]*)\s*[?(<:={;]", it.group(2))
        lead, rest = split_lead(plain(doc))
        if name and is_prose(lead):
            yield record("ts", name.group(1), lead, rest + "\n" + plain(re.sub(r"^@?\w+ (\{[^}]*\} )?", "", tags, flags=re.M)), it.group(2).strip())


def sections(text, path):
    """Headings and what stands under them, of Markdown and reStructuredText."""
    text = re.sub(r"^(.{3,100})\n([=\-~^\"'#*+])\2{2,}\s*$", r"# \1", text, flags=re.M)
    title = ""
    for part in re.split(r"^(?=#{1,4} )", text, flags=re.M):
        heading, _, body = part.partition("\n")
        if not heading.startswith("#"):
            continue
        heading = plain(heading.strip("# ")).strip()
        title = title or heading
        code = re.search(r"```\w*\n(.*?)```", body, re.S)
        body = plain(re.sub(r"```.*?(```|$)", " ", body, flags=re.S))
        paragraphs = [" ".join(it.split()) for it in re.split(r"\n\s*\n", body)]
        paragraphs = [it for it in paragraphs if len(it) > 40 and is_prose(it)]
        name = heading if heading == title or len(title) > 60 else f"{title}: {heading}"
        for at in range(0, min(len(paragraphs), 6), 2):
            yield record("doc", name, paragraphs[at] if at == 0 else "", "\n".join(paragraphs[at + (at == 0):at + 2]),
                         code.group(1) if code and at == 0 else "")


def operations(path, document):
    if "operations" in document:
        service = (document.get("metadata") or {}).get("serviceFullName", "")
        shapes = document.get("shapes", {})
        for name, it in document["operations"].items():
            lead, rest = split_lead(plain(it.get("documentation") or ""))
            members = shapes.get((it.get("input") or {}).get("shape"), {}).get("members", {})
            details = "\n".join(f"{name}: {plain(of.get('documentation') or '')[:120]}" for name, of in members.items())
            if is_prose(lead):
                yield record("op", f"{service}: {name}", lead, rest[:500] + "\n" + details)
        for name, it in shapes.items():
            lead, rest = split_lead(plain(it.get("documentation") or ""))
            if is_prose(lead) and len(lead) > 40:
                yield record("shape", f"{service}: {name}", lead, rest)
    elif "resources" in document:
        def walk(of):
            for name, method in (of.get("methods") or {}).items():
                lead, rest = split_lead(plain(method.get("description") or ""))
                details = "\n".join(f"{key}: {(value.get('description') or '')[:120]}" for key, value in (method.get("parameters") or {}).items())
                if is_prose(lead):
                    yield record("op", f"{document.get('title', '')}: {method.get('id', name)}", lead, rest[:500] + "\n" + details)
            for below in (of.get("resources") or {}).values():
                yield from walk(below)
        yield from walk(document)
        for name, it in (document.get("schemas") or {}).items():
            if is_prose(it.get("description") or "") and len(it["description"]) > 40:
                lead, rest = split_lead(plain(it["description"]))
                details = "\n".join(f"{key}: {(value.get('description') or '')[:100]}" for key, value in (it.get("properties") or {}).items())
                yield record("shape", f"{document.get('title', '')}: {name}", lead, rest[:400] + "\n" + details)


def debian():
    text = lzma.decompress(get(DEBIAN)).decode()
    for package in text.split("\n\n"):
        name = re.search(r"^Package: (.*)$", package, re.M)
        about = re.search(r"^Description-en: (.*)\n((?: .*\n?)*)", package, re.M)
        if not name or not about or re.search(r"transitional|dummy|debug symbols|metapackage", about.group(1)):
            continue
        paragraphs = [" ".join(it.split()) for it in re.split(r"\n \.\n", about.group(2))]
        paragraphs = [it for it in paragraphs if not re.match(r"(this|these) .{0,20}package", it, re.I)]
        yield record("deb", name.group(1), about.group(1), "\n".join(paragraphs))


if __name__ == "__main__":
    main()
