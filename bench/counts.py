#!/usr/bin/env python3
"""Noise-free companion of W1: system calls, fsyncs and bytes written per turn.

Runs each column twice under `strace -f` (100 and 200 turns) and divides the
difference by 100, so start-up cost drops out. Needs strace. Same environment
as run.py.
"""
import json, os, re, subprocess, sys, tempfile
from collections import Counter
import run as R

ONLY = set(sys.argv[1:])


def count(argv, turns):
    with tempfile.NamedTemporaryFile("r", suffix=".strace") as t:
        subprocess.run(["strace", "-f", "-qq", "-o", t.name, "-e", "trace=fsync,fdatasync,pwrite64,write,writev,sendto,sendmsg,ftruncate,unlink,rename", *argv, "--turns", str(turns)],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=280)
        c = Counter()
        for l in t:
            m = re.match(r"\d+ +(?:<\.\.\. )?(\w+)", l)
            r = re.search(r"= (-?\d+)\s*$", l)
            if not m or not r:
                continue
            n, v = m.group(1), int(r.group(1))
            c["calls"] += 1
            if n in ("fsync", "fdatasync"):
                c["fsync"] += 1
            elif n in ("pwrite64", "write", "writev", "sendto", "sendmsg") and v > 0:
                c["bytes"] += v
            elif n in ("unlink", "rename"):
                c["unlink"] += 1
        return c


class _A:
    secs = 10
    journal = None


R.A = _A
done = set()
print("| column | fsync/turn | KB written/turn | unlink+rename/turn |\n|---|---|---|---|")
for w, col, argv in R.jobs():
    if w != "w1" or col in done or (ONLY and col not in ONLY):
        continue
    done.add(col)
    try:
        a, b = count(argv, 100), count(argv, 200)
    except subprocess.TimeoutExpired:
        print("| %s | over time |" % col); continue
    d = lambda k: (b[k] - a[k]) / 100
    print("| %s | %.2f | %.1f | %.2f |" % (col, d("fsync"), d("bytes") / 1e3, d("unlink")), flush=True)
