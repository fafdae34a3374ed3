#!/usr/bin/env python3
"""Medians over repetitions, ratios to the limit and our targets, as Markdown tables on stdout."""
import json, os, sys
from collections import defaultdict
from pathlib import Path
from statistics import median

rows = defaultdict(list)
for l in open(Path(os.environ["BENCH_SCRATCH"]) / "results.jsonl"):
    o = json.loads(l)
    rows[(o["w"], o["col"])].append(dict(o["r"], rep=o["rep"]))


def val(w, col, k):
    v = [r[k] for r in rows.get((w, col), []) if isinstance(r.get(k), (int, float))]
    return median(v) if v else None


def spread(w, col, k):
    v = [r[k] for r in rows.get((w, col), []) if isinstance(r.get(k), (int, float))]
    return (min(v), max(v)) if v else (None, None)


def f(x, d=None):
    if x is None:
        return "-"
    if d is not None:
        return "%.*f" % (d, x)
    return "%.0f" % x if abs(x) >= 100 else "%.1f" % x if abs(x) >= 10 else "%.2f" % x if abs(x) >= 1 else "%.3f" % x


def ratio(a, b):
    return f(a / b) + "x" if a is not None and b else "-"


def cols(w):
    return [c for (x, c) in rows if x == w]


def table(title, head, body):
    if not body:
        return
    print("\n### %s\n\n| %s |\n|%s|" % (title, " | ".join(head), "|".join("---" for _ in head)))
    for b in body:
        print("| " + " | ".join(b) + " |")


ref = val("w1", "limit_wal_normal", "p50_ms")
b = []
for c in cols("w1"):
    full = [r for r in rows[("w1", c)] if r.get("turns", 0) >= max(x.get("turns", 0) for x in rows[("w1", c)])]
    last = next((k for k in ("at2000_ms", "at400_ms", "at200_ms", "at500_ms") if any(r.get(k) for r in full)), None)
    pairs = [(r["at100_ms"], r[last]) for r in full if last and r.get("at100_ms") and r.get(last)]    # same run only: fsync cost drifts
    g1, g2 = (median([a for a, _ in pairs]), median([z for _, z in pairs])) if pairs else (None, None)
    by = median([r["bytes"] for r in full if r.get("bytes")]) if any(r.get("bytes") for r in full) else None
    t = full[0].get("turns") if full else None
    b.append([c, str(t or "-"), f(val("w1", c, "turns_per_s")), f(val("w1", c, "p50_ms")), f(val("w1", c, "p99_ms")), f(g1),
              (f(g2) + " (%s)" % last[2:-3]) if g2 else "-", f(median([z / a for a, z in pairs]), 2) if pairs else "-",
              f((val("w1", c, "cpu_s") or 0) * 1e3 / median([r["turns"] for r in rows[("w1", c)] if r.get("turns")] or [1])) if val("w1", c, "cpu_s") else "-",
              ratio(val("w1", c, "p50_ms"), ref), f(by / 1e6, 1) if by else "-"])
table("W1 append one turn (6 messages), W5 bytes", ["column", "turns", "turns/s", "p50 ms", "p99 ms", "at turn 100", "at last", "growth", "CPU ms/turn", "p50 / limit", "MB"], b)

table("W1 as a CLI runs it: open, append one turn, close", ["column", "p50 ms", "p99 ms", "CPU ms/turn"], [[c, f(val("w1cli", c, "p50_ms")), f(val("w1cli", c, "p99_ms")), f((val("w1cli", c, "cpu_s") or 0) * 1e3 / (val("w1cli", c, "turns") or 1))] for c in cols("w1cli")])

for w, k, base, title in (("w2", "ms", "limit_zstd", "W2 load 10 000 messages"), ("w3", "ms", "limit", "W3 list 10 000 sessions"), ("w4", "ms", "limit", "W4 fork 10 000 messages"),
                          ("w6", "ms", "limit", "W6 context text from 10 000 events"), ("w7", "s", "limit", "W7 ingest 50 MB"), ("w10", "ms", "limit", "W10 ten commands of 0.2 s")):
    r0 = val(w, base, k)
    b = []
    for c in cols(w):
        v = val(w, c, k); lo, hi = spread(w, c, k)
        if v is None:
            b.append([c, next((str(rows[(w, c)][0][k])[:60] for k in ("failed", "unsupported", "not_installed") if k in rows[(w, c)][0]), "-"), "-", "-", ""]); continue
        extra = {x: val(w, c, x) for x in ("read_ms", "read_decompress_ms", "last50_ms", "first50_ms", "by_reference_ms", "row_by_row_ms", "rendered_column_ms", "incremental_turn_ms", "context_400k_ms", "zdict_ms", "context_bytes", "mb_per_s", "parse_s", "events", "open_only_ms") if val(w, c, x) is not None}
        b.append([c, f(v), "%s-%s" % (f(lo), f(hi)), ratio(v, r0), ", ".join("%s %s" % (a, f(x)) for a, x in extra.items())])
    table(title + " (%s)" % k, ["column", "median", "min-max", "/ limit", "details"], b)

for w in ("w8", "w8:same"):
    r0 = val(w, "limit_wal_normal", "turns_per_s")
    b = []
    for c in cols(w):
        tx = defaultdict(int)
        for r in rows[(w, c)]:
            e = r.get("error_texts") or {}
            for d in e if isinstance(e, list) else [e]:
                for t, n in d.items():
                    tx[t] += n
        b.append([c, f(val(w, c, "turns_per_s")), ratio(r0, val(w, c, "turns_per_s")), f(val(w, c, "errors")), f(val(w, c, "lost_rows")), f(val(w, c, "p99_ms")), f(val(w, c, "max_ms")),
                  "%s-%s" % (f(val(w, c, "min_share")), f(val(w, c, "max_share"))), "; ".join("%s x%d" % (t.split("\n")[0][:60], n) for t, n in sorted(tx.items(), key=lambda x: -x[1])[:3])])
    table("W8 8 processes, %s" % ("one session" if ":" in w else "a session each"), ["column", "turns/s", "limit /", "errors", "lost rows", "p99 ms", "max ms", "turns per process", "errors seen"], b)
table("W9 cold start", ["command", "median ms", "min ms", "/ clap"], [[c, f(val("w9", c, "ms")), f(val("w9", c, "min_ms")), ratio(val("w9", c, "ms"), val("w9", "hello_clap", "ms"))] for c in cols("w9")])
SERVERS = {"pg": "PostgreSQL, a commit waits for the disk", "pg:relaxed": "PostgreSQL, fsync off",
           "redis": "Redis, appendfsync always", "redis:relaxed": "Redis, appendfsync everysec"}
for w, title in SERVERS.items():
    table(title, ["column", "turns/s", "p50 ms", "p99 ms", "W2 ms"], [[c, f(val(w, c, "turns_per_s")), f(val(w, c, "p50_ms")), f(val(w, c, "p99_ms")), f(val(w, c, "w2_ms"))] for c in cols(w)])
FLOORS = ("w5", "zstd", "codecs", "json", "fsync", "spawn")
if any(w in FLOORS for w, _ in rows):
    print("\n### Floors\n")
for (w, c), v in rows.items():
    if w in FLOORS:
        out = {}
        for k in v[0]:
            if k == "rep":
                continue
            if isinstance(v[0][k], dict):
                out[k] = {x: float("%.4g" % median([r[k][x] for r in v])) for x in v[0][k]}
            else:
                out[k] = float("%.6g" % median([r[k] for r in v]))
        print("- `%s/%s`: %s" % (w, c, json.dumps(out)))


# ---------------------------------------------------------------- our targets
def pairs(w, ours, limit, k):
    """Ratios within each repetition, as the cost of an fsync drifts; of the medians where the runs do not pair up."""
    a, b = ([r[k] for r in rows.get((w, c), []) if isinstance(r.get(k), (int, float))] for c in (ours, limit))
    if len(a) == len(b):
        return [x / y for x, y in zip(a, b) if y]
    return [median(a) / median(b)] if a and b else []


def worst(w, c, k, pick=max):
    v = [r[k] for r in rows.get((w, c), []) if isinstance(r.get(k), (int, float))]
    return [pick(v)] if v else []


def behind_fastest(w, ours, k, pick=min, without=()):
    """Our figure to that of the peer that is best at it, within each repetition, and who that is."""
    v, best = [], defaultdict(int)
    for r in rows.get((w, ours), []):
        there = {c: p[k] for c in cols(w) if not c.startswith(("limit", "azureal")) and c not in without
                 for p in rows[(w, c)] if p["rep"] == r["rep"] and isinstance(p.get(k), (int, float))}
        if there and isinstance(r.get(k), (int, float)):
            name = pick(there, key=there.get)
            best[name] += 1
            v.append(r[k] / there[name])
    return v, " (the best of them: %s)" % max(best, key=best.get) if best else ""


# Peers that do not wait for the disk, and so promise less.
UNSYNCED = ("axio", "cllm")
T = []


def target(what, bound, unit, v, at_least=False):
    """One row; `v` are the figures of the repetitions, and their median counts."""
    want = (">= " if at_least else "<= " if bound else "") + "%g%s" % (bound, unit)
    if not v:
        T.append([what, want, "-", "not measured"]); return
    m = median(v)
    ok = m >= bound if at_least else m <= bound
    show = lambda x: f(x, 2) + "x" if unit == "x" else "%d" % x if not unit else f(x) + unit
    T.append([what, want, show(m) + (" (%s to %s)" % (show(min(v)), show(max(v))) if len(v) > 1 else ""), "met" if ok else "**missed**"])


target("W1 append a turn, to limit_delete_extra", 1.3, "x", pairs("w1", "azureal", "limit_delete_extra", "p50_ms"))
target("W1 append a turn, WAL, to limit_wal_full", 1.3, "x", pairs("w1", "azureal_wal", "limit_wal_full", "p50_ms"))
for who, without in (("every peer", ()), ("every peer that waits for the disk as we do", UNSYNCED)):
    v, best = behind_fastest("w1", "azureal_wal", "p50_ms", without=without)
    target("W1 append a turn, WAL: ahead of %s%s" % (who, best), 1, "x", v)
for c in ("azureal", "azureal_wal"):
    target("W1 turn 2 000 to turn 100, " + c, 1.1, "x", [r["at2000_ms"] / r["at100_ms"] for r in rows.get(("w1", c), []) if r.get("at2000_ms") and r.get("at100_ms")])
target("W1 as a command, to limit_delete_extra", 1.3, "x", pairs("w1cli", "azureal", "limit_delete_extra", "p50_ms"))
target("W2 load 10 000 messages, to limit_zstd", 1.1, "x", pairs("w2", "azureal", "limit_zstd", "ms"))
v, best = behind_fastest("w2", "azureal", "ms")
target("W2 load 10 000 messages: ahead of every peer" + best, 1, "x", v)
target("W2 the last 50", 1, " ms", [r["last50_ms"] for r in rows.get(("w2", "azureal"), []) if "last50_ms" in r])
target("W3 list 10 000 sessions, to limit", 1.5, "x", pairs("w3", "azureal", "limit", "ms"))
target("W3 the first 50", 0.5, " ms", [r["first50_ms"] for r in rows.get(("w3", "azureal"), []) if "first50_ms" in r])
target("W4 fork 10 000 messages, to limit_delete_extra", 1.3, "x", pairs("w4", "azureal", "limit_delete_extra", "ms"))
target("W6 context of 10 000 events, to limit", 1.1, "x", pairs("w6", "azureal", "limit", "ms"))
target("W6 context of 400 000 characters", 5, " ms", [r["context_400k_ms"] for r in rows.get(("w6", "azureal"), []) if "context_400k_ms" in r])
target("W6 text of one new turn", 0.1, " ms", [r["incremental_turn_ms"] for r in rows.get(("w6", "azureal"), []) if "incremental_turn_ms" in r])
for w, name in (("w8", "a session each"), ("w8:same", "one session")):
    target("W8 8 processes, %s, to limit_delete_extra_busy_short" % name, 0.8, "x", pairs(w, "azureal", "limit_delete_extra_busy_short", "turns_per_s"), at_least=True)
    target("W8 %s: errors in any run" % name, 0, "", worst(w, "azureal", "errors"))
    target("W8 %s: rows lost in any run" % name, 0, "", worst(w, "azureal", "lost_rows"))
    target("W8 %s: longest wait in any run" % name, 500, " ms", worst(w, "azureal", "max_ms"))
    target("W8 %s: largest share to smallest" % name, 2, "x", [r["max_share"] / max(r["min_share"], 1) for r in rows.get((w, "azureal"), []) if "max_share" in r])
for w, title in SERVERS.items():
    ours = "azureal_" + w.split(":")[0]
    target("%s: append a turn, to the limit" % title, 1.3, "x", pairs(w, ours, "limit_" + w.split(":")[0], "p50_ms"))
    v, best = behind_fastest(w, ours, "p50_ms")
    target("%s: append a turn, ahead of every peer%s" % (title, best), 1, "x", v)
    v, best = behind_fastest(w, ours, "turns_per_s", pick=max)
    target("%s: turns per second, ahead of every peer%s" % (title, best), 1, "x", v, at_least=True)
    v, best = behind_fastest(w, ours, "w2_ms")
    target("%s: load 10 000 messages, ahead of every peer%s" % (title, best), 1, "x", v)
for c, bound in (("azureal_help", 2), ("azureal_list", 5)):
    failed = any(r.get("rc") or not r.get("stdout_bytes") for r in rows.get(("w9", c), []))
    target("W9 %s, to hello_clap%s" % (c, " (fails or prints nothing)" if failed else ""), bound, "x", [] if failed else pairs("w9", c, "hello_clap", "ms"))
table("Targets", ["what", "target", "measured: median (min to max)", ""], T)
