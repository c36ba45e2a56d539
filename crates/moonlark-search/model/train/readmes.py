"""Collects README files of Python packages, as PyPI has them: summary and description.

    python readmes.py WORK-FOLDER PYPI

After the folder comes the address of the index. Draws names, some by what they seem to be about and some at random, asks for each, and
keeps those under a permissive licence in `readmes.jsonl.gz`. What PyPI says today is not
what it said when the model was made, so this gives no two times the same.
"""

import gzip
import http.client
import json
import queue
import random
import re
import sys
import threading
import urllib.request
from urllib.parse import urlsplit

WORK, PYPI = sys.argv[1], sys.argv[2].rstrip("/")
USES = re.compile(r"bio|gene|omic|protein|medic|clinic|cell|neuro|chem|health|drug|cancer|brain|dna|rna|virus|patient|diseas|epidem|"
                  r"physic|astro|climat|weather|recipe|food|travel|hotel|flight|music|movie|stock|finance|invoice|sport|shop|map|"
                  r"image|video|audio|pdf|email|calendar|database|sql|cloud|docker|kube|search|crypt|auth|test|deploy|game|geo|"
                  r"news|translate|speech|chart|plot|file|http", re.I)
SCIENCE = re.compile(r"bio|genom|gene[^r]|omics|protein|medic|clinic|neuro|cancer|tumor|brain|[dr]na[-_s]|virus|viral|disease|epidem|"
                     r"drug|pharm|chem|immun|microb|metabol|patho|physiol|ecolog|evolut|climat|astro|molecul|cell[-_s]|sequenc|"
                     r"health|patient|surviv|cardio|mri|eeg|phylo|species|plant|soil|ocean|materials|crystal|enzym|peptide|spectr|"
                     r"psych|econom|statist", re.I)
# What search is measured on, or comes near it.
KEPT_OUT = re.compile(r"mcp|anthropic|claude|github|gitlab|jira|trello|zoom|sendgrid|linode|digitalocean|bitbucket|gitea|twilio|"
                      r"notion|metatool|scifact|odoo|wix-protos|botocore-a-la|mypy-boto3|types-|django-.*settings", re.I)
PERMISSIVE = re.compile(r"\b(mit|bsd|apache|isc|unlicense|zlib|cc0|0bsd|psf|python software)\b", re.I)


def main():
    page = urllib.request.urlopen(f"{PYPI}/simple/").read().decode()
    names = [it for it in re.findall(r"<a [^>]*>([^<]+)</a>", page) if not KEPT_OUT.search(it)]
    random.seed(7)
    drawn = random.sample([it for it in names if USES.search(it)], 22000) + random.sample(names, 9000)
    drawn += random.sample([it for it in names if SCIENCE.search(it)], 10000)
    todo, lock = queue.Queue(), threading.Lock()
    for name in dict.fromkeys(drawn):
        todo.put(name)
    with gzip.open(f"{WORK}/readmes.jsonl.gz", "wt") as out:
        threads = [threading.Thread(target=ask, args=(todo, lock, out)) for _ in range(6)]
        for it in threads:
            it.start()
        for it in threads:
            it.join()


def ask(todo, lock, out):
    connection = http.client.HTTPSConnection(urlsplit(PYPI).netloc, timeout=30)
    while True:
        try:
            name = todo.get_nowait()
        except queue.Empty:
            return
        try:
            connection.request("GET", f"/pypi/{name}/json")
            info = json.loads(connection.getresponse().read())["info"]
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            connection.close()
            continue
        classifiers = [it for it in info.get("classifiers") or [] if it.startswith("License")]
        licence = " ".join([str(info.get("license") or "")[:60], str(info.get("license_expression") or ""), *classifiers])
        about = info.get("description") or ""
        if PERMISSIVE.search(licence) and not re.search(r"gpl|proprietary", licence, re.I) and len(about) > 200:
            with lock:
                out.write(json.dumps({"name": info["name"], "summary": info.get("summary"), "text": about[:20000]}) + "\n")


if __name__ == "__main__":
    main()
