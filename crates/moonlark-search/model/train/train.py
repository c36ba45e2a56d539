"""Trains tables of vectors on what teach.py has left, and writes the model.

    python train.py WORK-FOLDER settings.jsonl MODEL

The folder has `old.bin` as well, which make.py makes. Each line of the settings is a
table; MODEL is the mean of them all.
"""

import json
import math
import os
import random
import re
import struct
import sys
import time
import unicodedata
from multiprocessing import Pool

import numpy as np
import torch
import torch.nn.functional as F

D = sys.argv[1]
RUN = re.compile(r"(?:[^\W_]|[\u0300-\u036f])+")
T0 = time.time()
say = lambda *it: print(f"{time.time() - T0:6.1f}", *it, flush=True)
DIM = 256
LENGTHS = (32, 112, 128)


def fold(word):
    word = word.lower()
    if word.isascii():
        return word
    return "".join(it for it in unicodedata.normalize("NFD", word) if not "\u0300" <= it <= "\u036f")


def words_of(texts):
    """The words of texts as numbers of an own list."""
    own, out = {}, []
    for text in texts:
        out.append([own.setdefault(fold(run), len(own)) for run in RUN.findall(text)[:160]])
    return list(own), out


class Data:
    def __init__(self):
        if os.path.exists(f"{D}/words.npz"):
            of = np.load(f"{D}/words.npz")
            self.flat, self.starts = of["flat"], of["starts"]
            self.words = json.load(open(f"{D}/words_list.json"))
        else:
            made = json.load(open(f"{D}/views.json"))
            texts = [it[at] for at in range(3) for it in made]
            parts = [texts[at:at + 20000] for at in range(0, len(texts), 20000)]
            own, flats, lengths = {}, [], []
            with Pool(15) as pool:
                for words, lists in pool.imap(words_of, parts):
                    number = np.array([own.setdefault(it, len(own)) for it in words], np.int32)
                    lengths.extend(map(len, lists))
                    flats.append(number[np.fromiter((it for one in lists for it in one), np.int64)])
            self.flat, self.starts, self.words = np.concatenate(flats), np.concatenate([[0], np.cumsum(lengths)]), list(own)
            np.savez(f"{D}/words.npz", flat=self.flat, starts=self.starts)
            json.dump(self.words, open(f"{D}/words_list.json", "w"))
        self.of = json.load(open(f"{D}/of.json"))
        self.n = len(self.of)
        taught = torch.from_numpy(np.load(f"{D}/taught.npy")).cuda()
        self.taught = F.normalize(taught[:3 * self.n].float(), dim=-1).half()
        self.alone = F.normalize(taught[3 * self.n:].float(), dim=-1)
        self.names = json.load(open(f"{D}/vocabulary.json"))
        self.counts = np.bincount(self.flat, minlength=len(self.words))
        science = re.compile(r"\b(proteins?|genes?|genom\w+|cells?|patients?|diseases?|cancer|tumou?rs?|rna|dna|tissues?|neuro\w+|clinical|"
                             r"mutations?|antibod\w+|metabol\w+|enzym\w+|bacteri\w+|vir(?:us|al)\w*|infect\w+|brain|cortex|molecul\w+|"
                             r"organisms?|populations?|acids?|reactions?|receptors?|symptoms?|treatments?|therap\w+|risk|stud(?:y|ies)|experiment\w*|"
                             r"physic\w+|surgery|surgical|muscles?|bones?|skin|lungs?|liver|kidneys?|nerves?|disorders?|syndromes?|vaccin\w+|diet\w*|"
                             r"nutrition\w*|exposure|evidence|hypothes\w+|statistic\w+|regression|animals?|plants?|"
                             r"chemi\w+|biolog\w+|medic\w+|drugs?|species|phylogen\w+|hormon\w+|blood|heart|immun\w+)\b", re.I)
        self.science = [kind in ("doc", "pkg", "deb", "wn", "wp", "py") and len(set(it.lower() for it in science.findall(text[2]))) >= (1 if kind == "wn" else 2)
                        for text, (_, kind) in zip(json.load(open(f"{D}/views.json")), self.of)]
        say("data", sum(self.science), "of science", self.n, "records", len(self.words), "words", len(self.flat) / 1e6, "million of them")

    def pieces(self, names):
        """Every text as pieces of a vocabulary, padded."""
        first = {it: at for at, it in enumerate(names) if not it.startswith("##")}
        further = {it[2:]: at for at, it in enumerate(names) if it.startswith("##")}

        def split(word):
            if word in first:
                return (first[word],)
            found, rest = [], word
            if len(word) > 64:
                return ()
            while rest:
                of = further if found else first
                end = next((end for end in range(min(len(rest), 24), 0, -1) if rest[:end] in of), None)
                if end is None:
                    return ()
                found.append(of[rest[:end]])
                rest = rest[end:]
            return tuple(found)

        of = [split(it) for it in self.words]
        lengths = np.array([len(it) for it in of])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        flat = torch.from_numpy(np.array([it for one in of for it in one], np.int64)).int().cuda()
        lengths, starts = torch.from_numpy(lengths).cuda(), torch.from_numpy(starts[:-1]).cuda()
        words, texts = torch.from_numpy(self.flat).long().cuda(), torch.from_numpy(self.starts).cuda()
        # Where the pieces of each word of each text go.
        many = lengths[words]
        ends = torch.cat([torch.zeros(1, dtype=torch.long, device="cuda"), many.cumsum(0)])
        which = torch.repeat_interleave(torch.arange(len(words), device="cuda"), many)
        place = torch.arange(len(which), device="cuda") - ends[which]
        piece = flat[starts[words[which]] + place]
        text_starts = ends[texts]
        text = torch.repeat_interleave(torch.arange(3 * self.n, device="cuda"), text_starts[1:] - text_starts[:-1])
        at = torch.arange(len(piece), device="cuda") - text_starts[text]
        out = []
        for view, most in enumerate(LENGTHS):
            table = torch.full((self.n, most), len(names), dtype=torch.int32, device="cuda")
            mine = (text >= view * self.n) & (text < (view + 1) * self.n) & (at < most)
            table[text[mine] - view * self.n, at[mine]] = piece[mine]
            out.append(table)
        counts = torch.bincount(piece.long(), minlength=len(names)).float()
        return out, counts


def sums(table, pieces, drop=0.0):
    rows = torch.cat([table, table.new_zeros(1, table.shape[1])])
    weights = None
    if drop:
        weights = (torch.rand(pieces.shape, device="cuda") >= drop).to(table.dtype)
    return F.embedding_bag(pieces, rows, mode="sum", per_sample_weights=weights, padding_idx=len(table))


def held_out(data, tables, table, rows_of):
    """For each kind, how well a question finds its answer, and how many of the ten that the teachers find nearest."""
    found, alike = {}, {}
    for kind, rows in rows_of.items():
        a = F.normalize(sums(table, tables[0][rows]), dim=-1)
        b = F.normalize(sums(table, tables[1][rows]), dim=-1)
        near = a @ b.T
        place = (near > near.diagonal()[:, None]).sum(1) + 1
        found[kind] = float((1 / place.float() * (place <= 10)).mean())
        known = data.taught[rows].float() @ data.taught[data.n + rows].float().T
        ours, theirs = near.topk(10).indices, known.topk(10).indices
        alike[kind] = float((ours[:, :, None] == theirs[:, None, :]).any(2).float().mean())
    own = [kind for kind in found if kind != "sci"]
    mean = lambda of: sum(of[kind] for kind in own) / len(own)
    score = (mean(found) + mean(alike) + found["sci"] + alike["sci"]) / 4
    return {"found": round(mean(found), 4), "alike": round(mean(alike), 4), "sci found": round(found["sci"], 4),
            "sci alike": round(alike["sci"], 4), "score": round(score, 4)}


def rounded(table, bits):
    most = 127 if bits == 8 else 7
    if bits == 8:
        scale = table.abs().amax(1, keepdim=True) / most
        return scale, (table / scale.clamp(min=1e-12)).round().clamp(-most, most)
    best, least = None, None
    top = table.abs().amax(1, keepdim=True)
    for share in torch.linspace(0.35, 1.0, 27):
        scale = top * share / 7.5
        # Sixteen steps, none of them nothing: -7.5 to 7.5.
        level = (table / scale.clamp(min=1e-12) - 0.5).round().clamp(-8, 7) + 0.5
        wrong = (level * scale - table).pow(2).sum(1, keepdim=True)
        if best is None:
            best, least, levels = scale.clone(), wrong, level.clone()
        else:
            better = wrong < least
            best, least = torch.where(better, scale, best), torch.where(better, wrong, least)
            levels = torch.where(better, level, levels)
    return best, levels


def prior(data, names, tables, share, init):
    """Where a table begins: what the teachers make of a piece alone, the table of the model before, or between."""
    common = (1e-3 / (1e-3 + share))[:, None]
    alone = F.normalize(data.alone[:len(names), :DIM], dim=-1) * common
    if not init:
        return alone
    with open(f"{D}/old.bin", "rb") as file:
        content = file.read()
    many, wide, letters = struct.unpack("<III", content[4:16])
    scale = np.frombuffer(content, "<f4", many, 16 + letters)
    old = np.frombuffer(content, np.int8, many * wide, 16 + letters + 4 * many).reshape(many, wide)
    old = torch.from_numpy(old * scale[:, None]).float().cuda()
    sample = torch.randperm(data.n, device="cuda")[:150000]
    pieces = tables[2][sample].long()
    pieces = torch.where(pieces < many, pieces, many).int()
    texts = F.normalize(sums(old, pieces) + 1e-9, dim=-1)
    turn = torch.linalg.lstsq(texts, data.taught[2 * data.n + sample][:, :DIM].float()).solution
    turned = old @ turn
    turned = turned / (turned * (1 / common[:many])).norm(dim=1).median()
    # A piece that the model before does not have: what its vector alone lets expect.
    known = torch.cat([data.alone[:len(names)], torch.ones(len(names), 1, device="cuda")], 1)
    whole = turned / common[:many]
    expected = known @ torch.linalg.lstsq(known[:many], whole).solution * common
    turned = torch.cat([turned, expected[many:]])
    return (1 - init) * alone + init * turned


TABLES = {}


def train(data, name, new=24000, steps=2500, batch=4096, rate=3e-3, regress=1.0, contrast=0.3, match=0.3, init=0.5,
          drop=0.15, tau=0.05, margin=0.02, decay=0.0, hard=32, bits=(8, 4), seed=1, science=1):
    torch.manual_seed(seed)
    began = time.time()
    names = data.names[:29156 + new]
    if new not in TABLES:
        TABLES.clear()
        TABLES[new] = data.pieces(names)
    tables, counts = TABLES[new]
    of = data.of
    # Whole packages are held out; while settings are chosen, all of science as well.
    held, rows_of = set(), {}
    for at, (source, kind) in enumerate(of):
        if data.science[at]:
            continue
        if at % 30 == 0 if kind in ("deb", "wn", "wp", "op", "shape") else hash_of(source) == 0:
            held.add(at)
            rows_of.setdefault(kind, []).append(at)
    rows_of["sci"] = [at for at in range(data.n) if data.science[at] and (science == 0 or hash_of(at // 20) == 0)]
    held.update(rows_of["sci"])
    test = {}
    for kind, rows in rows_of.items():
        chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(5))[:2500].tolist()
        test[kind] = torch.tensor([rows[at] for at in chosen], dtype=torch.long, device="cuda")
    mine = [at for at in range(data.n) if at not in held]
    mine += [at for at in mine if data.science[at]] * max(0, science - 1)
    mine = torch.tensor(mine, device="cuda")
    share = counts / counts.sum()
    table = torch.nn.Parameter(prior(data, names, tables, share, init).clone())
    start = table.detach().clone()
    optimizer = torch.optim.Adam([table], lr=rate, betas=(0.9, 0.99), eps=1e-10)
    groups = len(mine) // hard
    order = None
    at = 0
    mean = [0.0] * 3
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / 50) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        if order is None or (at + 1) * (batch // hard) > groups:
            offset = random.randrange(hard)
            order, at = torch.randperm(groups - 1, device="cuda"), 0
        chosen = order[at * (batch // hard):(at + 1) * (batch // hard)]
        at += 1
        rows = mine[(chosen[:, None] * hard + torch.arange(hard, device="cuda") + offset).flatten().clamp(max=len(mine) - 1)]
        wanted = [data.taught[view * data.n + rows].float() for view in range(3)]
        views = [F.normalize(sums(table, tables[view][rows], drop) + 1e-9, dim=-1) for view in range(3)]
        loss = 0
        if regress:
            part = sum((1 - F.cosine_similarity(views[view], wanted[view][:, :DIM])).mean() for view in range(3)) / 3
            loss = loss + regress * part
            mean[0] += float(part.detach()) if step % 10 == 0 else 0
        near = views[0] @ views[1].T
        known = wanted[0] @ wanted[1].T
        if contrast:
            # What the teachers find as near as the answer is no wrong answer.
            same = torch.eye(len(rows), dtype=torch.bool, device="cuda")
            false = (known > known.diagonal()[:, None] - margin) & ~same
            false_back = (known > known.diagonal()[None, :] - margin) & ~same
            label = torch.arange(len(rows), device="cuda")
            part = (F.cross_entropy((near / tau).masked_fill(false, -1e4), label)
                    + F.cross_entropy((near / tau).masked_fill(false_back, -1e4).T, label)) / 2
            loss = loss + contrast * part
        if match:
            part = F.kl_div(F.log_softmax(near / 0.07, 1), F.softmax(known / 0.07, 1), reduction="batchmean") \
                + F.kl_div(F.log_softmax(near.T / 0.07, 1), F.softmax(known.T / 0.07, 1), reduction="batchmean")
            loss = loss + match * part / 2
        if decay:
            loss = loss + decay * (table - start).pow(2).sum() / 2048
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    table = table.detach()
    whole = held_out(data, tables, table, test)
    say(f"{name}: {time.time() - began:.0f}s", {"init": init, "decay": decay, "regress": regress, "contrast": contrast, "match": match, "rate": rate, "drop": drop}, whole)
    for many in bits:
        scale, level = rounded(table, many)
        got = held_out(data, tables, scale * level, test)
        say(name, many, "bits", got, "cosine of rows", round(float(F.cosine_similarity(scale * level, table).mean()), 4))
    return names, table


def write(file, names, table):
    scale, level = rounded(table, 4)
    rows = (level.cpu().numpy() - 0.5 + 8).round().astype(np.uint8)
    rows = rows[:, :DIM // 2] | rows[:, DIM // 2:] << 4
    text = "\n".join(names).encode()
    with open(file, "wb") as out:
        out.write(b"MLS4" + struct.pack("<III", len(names), DIM, len(text)) + text)
        out.write(scale[:, 0].cpu().numpy().astype("<f4").tobytes() + np.ascontiguousarray(rows).tobytes())


def hash_of(number):
    return (number * 2654435761 >> 7) % 25


if __name__ == "__main__":
    data, tables = Data(), []
    for line in open(sys.argv[2]):
        random.seed(3)
        names, table = train(data, **json.loads(line))
        tables.append(table)
    write(sys.argv[3], names, sum(tables) / len(tables))
