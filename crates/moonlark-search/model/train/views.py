"""Questions, descriptions and whole texts, made of the records."""

import hashlib
import re

CUT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
GENERIC = re.compile(r"^(usage|install\w*|example\w*|overview|introduction|features?|license|contribut\w*|requirements?|"
                     r"quick ?start|getting started|documentation|development|todo|notes?|links?|api|about|description|"
                     r"testing|tests|credits|support|summary|background|options|see also)$", re.I)
ASK = ["How do I {}?", "How can I {}?", "I want to {}.", "I need to {}", "Can you {}?", "Could you please {}?",
       "Is there a way to {}?", "{} for me", "Please {}.", "What is the best way to {}?", "Help me {}", "I'm looking for a tool to {}"]
WHAT = ["What is the purpose of the `{}` {}?", "What does the {1} {0} do?", "How does the `{}` {} work?", "Explain the {0} {1}.",
        "What is {}?", "How is the {} {} used?"]
WANT = ["I'm looking for {}", "I need {}", "Is there something like {}?", "Which one is {}?", "find {}", "Do you know {}?", "{}, please"]
THING = {"py": "function", "rs": "function", "ts": "property", "op": "operation", "shape": "type"}


def apart(name):
    return " ".join(CUT.sub(" ", re.sub(r"[_\-./:]+", " ", name)).split())


def dice(record, salt):
    return int.from_bytes(hashlib.sha1((salt + "\0".join(record[2:5])).encode("utf8", "replace")).digest()[:4], "big") / 2**32


def asked(lead, roll):
    """`Creates an issue.` as `How do I create an issue?`"""
    text = lead.strip().rstrip(".!")
    first, _, rest = text.partition(" ")
    word = first.lower()
    if not rest or not word.isalpha():
        return lead
    if re.search(r"(ches|shes|sses|xes|zes)$", word):
        word = word[:-2]
    elif re.search(r"[a-z]{2}ies$", word):
        word = word[:-3] + "y"
    elif re.search(r"[a-rt-z]s$", word) and len(word) > 3 and word not in ("this", "whether", "always", "class"):
        word = word[:-1]
    elif len(text) > 90:
        return lead
    text = f"{word} {rest}"
    return ASK[int(roll * 1000) % len(ASK)].format(text)


def views(record):
    """A question, what answers it, and all of it."""
    _, kind, name, lead, body, code = record
    roll, other, third = dice(record, "a"), dice(record, "b"), dice(record, "c")
    whole = "\n".join(it for it in (name, lead, body) if it)
    if kind == "wn":
        if roll < 0.7:
            return name, f"{lead} {body}", f"{name}: {lead} {body}"
        return lead, f"{name}. {body}", f"{name}: {lead}"
    if kind == "doc":
        heading = name.rsplit(": ", 1)[-1]
        told = not GENERIC.match(heading) and len(heading) > 8
        if told and (roll < 0.55 or not lead):
            if other < 0.3 and not heading.endswith("?"):
                heading = (f"How to {heading[0].lower()}{heading[1:]}?" if re.match(r"^[A-Z]?[a-z]+ing ", heading) is None and third < 0.4
                           else f"What is {heading}?" if third < 0.7 else name)
            return heading, f"{lead} {body}", whole
        if lead and body:
            return lead, f"{name}\n{body}" if other < 0.5 else body, whole
        return name, f"{lead} {body}", whole
    if kind in ("py", "rs", "ts"):
        written = code if (not body or other < 0.5) else ""
        told = f"{name}\n{body}\n{written}" if third < 0.6 else f"{body}\n{written}"
        if kind in ("py", "rs") and third > 0.85:
            told = code
        if roll < 0.5:
            ask = lead
        elif roll < 0.72:
            ask = asked(lead, other)
        elif roll < 0.82:
            ask = WHAT[int(other * 1000) % len(WHAT)].format(name, THING[kind])
            told = f"{lead}\n{body}\n{code}" if third < 0.5 else f"{name} {lead} {body}"
        elif roll < 0.92:
            ask, told = apart(name), f"{lead} {body} {written}"
        else:
            ask, told = f"{name} {lead}", f"{body}\n{code}"
        return ask, told.strip() or whole, whole + ("\n" + code if third < 0.4 else "")
    # op, shape, pkg, deb: a description in one line, and what else is said.
    told = f"{name}\n{body}" if third < 0.6 else body
    if len(body) < 40:
        told = f"{name}\n{body}"
    if roll < 0.45:
        ask = lead
    elif roll < 0.75:
        ask = asked(lead, other) if kind == "op" else lead if kind in ("shape", "wp") else WANT[int(other * 1000) % len(WANT)].format(lead)
    elif roll < 0.85:
        ask, told = apart(name.split(": ")[-1]), f"{lead} {body}"
    else:
        ask, told = lead, f"{name}\n{body}"
    return ask, told.strip() or whole, whole


def for_teacher(text):
    return CUT.sub(" ", text.replace("_", " "))
