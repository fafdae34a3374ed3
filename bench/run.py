#!/usr/bin/env python3
"""Runs every column on every workload, interleaved, and appends one JSON line
per measurement to $BENCH_SCRATCH/results.jsonl.

A column is a command that takes a workload name and prints one JSON line.
Environment (all optional except BENCH_SCRATCH; a missing one drops its column):
  BENCH_SCRATCH   data, work files, results
  LIMIT_BIN       the release build of ./limit        -> column "limit*"
  HELLO_BIN       the release build of ./limit's hello
  AZUREAL_BENCH   the release build of azureal-bench -> columns "azureal", "azureal_wal"
  AZUREAL_BIN     the release build of azureal, for W9
  AZUREAL_W9_STORE  the store of 10 000 sessions that W3 made, for W9
  AZUREAL_V1      a scratch build over the earlier AZUREAL sources (not kept here)
  PEER_PY         Python with what peers.txt names  -> columns of the peers
  CLLM_PY         Python with cllm installed
  LLM_BIN CLLM_BIN CLAUDE_BIN CODEX_BIN               -> W9
  BENCH_PG BENCH_REDIS                                -> workloads "pg" and "redis"
  BENCH_PG_RELAXED BENCH_REDIS_RELAXED                -> the same on servers that do not wait for the disk
  REAL_TEXT       a directory of source code, for the zstd check on real text
  REAL_TRAIN      another project's source code, for a dictionary that never saw REAL_TEXT
"""
import argparse, json, os, shlex, subprocess, sys, time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
E = os.environ
SCRATCH = Path(E["BENCH_SCRATCH"])
OUT = SCRATCH / "results.jsonl"


def cmd(name):
    v = E.get(name)
    return shlex.split(v) if v else None


def peer(py, name):
    p = cmd(py)
    return p + [str(HERE / "peers.py"), name] if p else None


LIM, AZ, AZ1 = cmd("LIMIT_BIN"), cmd("AZUREAL_BENCH"), cmd("AZUREAL_V1")
PY = ["openai_sqlite", "openai_advanced", "openai_sqlalchemy", "axio", "llm", "langchain_sql", "langgraph_sqlite", "langgraph_sqlite_sync", "langgraph_delta"]
# columns where a turn costs several fsyncs
SLOW = {"azureal", "limit_delete_extra", "limit_delete_full", "limit_delete_normal", "azureal_v1", "limit_file_fdatasync"}


def is_peer(col):
    return not col.startswith(("azureal", "limit"))


def all_turns_once(w, col):
    """Says whether later repetitions do with fewer turns; not where the first turns of a file would decide who is ahead."""
    if w == "w1":
        return col in SLOW or is_peer(col) and col != "openai_sqlite"
    return w.split(":")[0] in ("pg", "redis") and is_peer(col)


def jobs():
    """(workload, column, argv)"""
    J = []

    def add(w, col, base, *extra):
        if base:
            J.append((w, col, base + [w.split(":")[0]] + list(extra)))

    journal = ("--journal", A.journal) if A.journal else ()
    # ours runs right after the limit that it is compared with, and before the peer that syncs as it does: the cost of an fsync drifts
    for m in ("wal_normal", "wal_full", "delete_normal", "delete_full", "delete_extra", "file_none", "file_fdatasync"):
        add("w1", "limit_" + m, LIM, "--mode", m)
        if m == "wal_full":
            add("w1", "azureal_wal", AZ, "--journal", "wal")
            add("w1", "openai_sqlite", peer("PEER_PY", "openai_sqlite"))
        if m == "delete_extra":
            add("w1", "azureal", AZ, *journal)
    for k in ("plain", "zdict"):
        add("w1", "limit_wal_normal_" + k, LIM, "--mode", "wal_normal", "--codec", k)
    add("w1", "limit_wal_normal_ctx_column", LIM, "--mode", "wal_normal", "--ctx", "1")
    for m in ("wal_normal", "wal_full", "delete_normal", "delete_extra"):
        add("w1cli", "limit_" + m, LIM, "--mode", m)
    add("w1cli", "azureal", AZ, *journal)
    add("w1cli", "limit_wal_normal_keep_wal", LIM, "--mode", "wal_normal", "--keep_wal", "1")
    add("w1cli", "limit_wal_full_keep_wal", LIM, "--mode", "wal_full", "--keep_wal", "1")
    add("w1cli", "limit_wal_normal_keep_wal_100", LIM, "--mode", "wal_normal", "--keep_wal", "1", "--autockpt", "100")
    for w in ("w1", "w2", "w3", "w4", "w6", "w7"):
        if w != "w4":
            add(w, "azureal_v1", AZ1)
    for p in PY:
        if p != "openai_sqlite":
            add("w1", p, peer("PEER_PY", p))
    add("w1", "cllm", peer("CLLM_PY", "cllm"))
    for k in ("plain", "zstd", "zdict"):
        add("w2", "limit_" + k, LIM, "--codec", k)
        if k == "zstd":
            add("w2", "azureal", AZ)
    for w in ("w3", "w4", "w5", "w6", "w7", "w10", "zstd", "codecs", "json", "fsync", "spawn"):
        add(w, "limit", LIM)
        if w == "w4":
            add(w, "limit_delete_extra", LIM, "--mode", "delete_extra")
        if w in ("w3", "w4", "w6", "w7", "w10"):
            add(w, "azureal", AZ)
    if "REAL_TEXT" in E:
        add("zstd", "limit_real_text", LIM, "--real", E["REAL_TEXT"])
    if "REAL_TEXT" in E and "REAL_TRAIN" in E:
        add("zstd", "limit_real_text_other_dict", LIM, "--real", E["REAL_TEXT"], "--train", E["REAL_TRAIN"])
    for p in ("openai_sqlite", "openai_advanced", "openai_sqlalchemy", "axio", "llm", "langchain_sql", "langgraph_sqlite"):
        add("w2", p, peer("PEER_PY", p))
    add("w2", "cllm", peer("CLLM_PY", "cllm"))
    for p in ("axio", "llm", "langgraph_sqlite"):
        add("w3", p, peer("PEER_PY", p))
    add("w3", "cllm", peer("CLLM_PY", "cllm"))
    for p in ("axio", "openai_advanced", "llm"):
        add("w4", p, peer("PEER_PY", p))
    for p in ("axio", "openai_sqlite", "langchain_sql"):
        add("w6", p, peer("PEER_PY", p))
    for p in ("openai_sqlite", "axio"):
        add("w7", p, peer("PEER_PY", p))
    for same in ("0", "1"):
        w = "w8" if same == "0" else "w8:same"
        for m in ("wal_normal", "wal_full") if same == "0" else ("wal_normal",):
            add(w, "limit_" + m, LIM, "--mode", m, "--same", same, "--secs", str(A.secs))
        for m, b in ([(m, b) for b in ("flock", "short") for m in ("wal_normal", "wal_full", "delete_extra")] if same == "0"
                     else [("wal_full", "short"), ("delete_extra", "short")]):
            add(w, "limit_%s_busy_%s" % (m, b), LIM, "--mode", m, "--busy", b, "--same", same, "--secs", str(A.secs))
            if b == "short" and m == "wal_full":
                add(w, "azureal_wal", AZ, "--same", same, "--secs", str(A.secs), "--journal", "wal")
            if b == "short" and m == "delete_extra":
                add(w, "azureal", AZ, "--same", same, "--secs", str(A.secs), *journal)
        add(w, "azureal_v1", AZ1, "--same", same, "--secs", str(A.secs))
        for p in ("openai_sqlite", "openai_sqlalchemy", "axio", "llm", "langchain_sql") if same == "0" else ("openai_sqlite", "axio", "llm"):
            add(w, p, peer("PEER_PY", p), "--same", same, "--secs", str(A.secs))
        if same == "1":
            add(w, "cllm", peer("CLLM_PY", "cllm"), "--same", same, "--secs", str(A.secs))
    add("w10", "cllm", peer("CLLM_PY", "cllm"))
    for w, var, peers in (("pg", "BENCH_PG", ("openai_pg", "langchain_pg", "langgraph_pg")), ("redis", "BENCH_REDIS", ("openai_redis", "langchain_redis"))):
        for kind, name in (("", var), (":relaxed", var + "_RELAXED")):
            if name not in E:
                continue
            here = lambda base: base and ["env", "%s=%s" % (var, E[name])] + base
            add(w + kind, "limit_" + w, here(LIM))
            add(w + kind, "azureal_" + w, here(AZ))
            for p in peers:
                add(w + kind, p, here(peer("PEER_PY", p)))
    if "BENCH_PG" in E:
        add("pgw", "azureal_pg", AZ, "--secs", str(A.secs))
    return J


def record(w, col, rep, r, wall):
    with open(OUT, "a") as f:
        f.write(json.dumps({"w": w, "col": col, "rep": rep, "r": r, "wall_s": round(wall, 3), "load1": os.getloadavg()[0], "t": time.strftime("%FT%TZ", time.gmtime())}) + "\n")


def cold(rep):
    home = SCRATCH / "home"; home.mkdir(parents=True, exist_ok=True)
    env = dict(E, HOME=str(home), LLM_USER_PATH=str(home / "llm"), DISABLE_AUTOUPDATER="1", CLAUDE_CONFIG_DIR=str(home / "claude"), CODEX_HOME=str(home / "codex"))
    (home / "codex").mkdir(exist_ok=True)
    L = [("hello_clap", "HELLO_BIN", ["--help"]), ("hello_clap_list", "HELLO_BIN", ["list"]), ("limit_sqlite_list", "LIMIT_BIN", ["w3", "--reps", "1"]),
         ("llm_help", "LLM_BIN", ["--help"]), ("llm_logs_list", "LLM_BIN", ["logs", "list", "-n", "3"]), ("cllm_help", "CLLM_BIN", ["--help"]), ("cllm_list", "CLLM_BIN", ["--list-conversations"]),
         ("claude_help", "CLAUDE_BIN", ["--help"]), ("claude_version", "CLAUDE_BIN", ["--version"]), ("codex_help", "CODEX_BIN", ["--help"]), ("codex_exec_help", "CODEX_BIN", ["exec", "--help"]),
         ("azureal_help", "AZUREAL_BIN", ["--help"]), ("azureal_list", "AZUREAL_BIN", ["list", "--all", "-n", "50"])]
    if "AZUREAL_W9_STORE" in E:  # the 10 000 session store that w3 made
        env["AZUREAL_STORE"] = E["AZUREAL_W9_STORE"]
    for name, var, args in L:
        c = cmd(var)
        if not c:
            continue
        v, rc = [], None
        # untimed: a program that starts fast because it does nothing says nothing
        said = len(subprocess.run(c + args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, cwd=home).stdout)
        for _ in range(8):
            t = time.perf_counter()
            rc = subprocess.run(c + args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env, cwd=home).returncode
            v.append((time.perf_counter() - t) * 1e3)
        record("w9", name, rep, {"ms": median(v[1:]), "min_ms": min(v), "first_ms": v[0], "rc": rc, "stdout_bytes": said}, sum(v) / 1e3)
        print("w9", name, round(median(v[1:]), 1), flush=True)


def main():
    global A
    ap = argparse.ArgumentParser()
    ap.add_argument("--reps", type=int, default=3); ap.add_argument("--only", help="comma list of workloads"); ap.add_argument("--cols", help="comma list of columns")
    ap.add_argument("--secs", type=int, default=10); ap.add_argument("--first-rep", type=int, default=1)
    ap.add_argument("--journal", choices=("delete", "wal"), help="journal mode of the column azureal in w1, w1cli and w8 (its own default without)")
    ap.add_argument("--turns", type=int, help="fewer turns in w1, w1cli, pg and redis: a quick try, not a measurement")
    A = ap.parse_args()
    only = A.only.split(",") if A.only else None
    cols = A.cols.split(",") if A.cols else None
    for rep in range(A.first_rep, A.first_rep + A.reps):
        if not only or "w9" in only:
            cold(rep)
        for w, col, argv in jobs():
            if only and w.split(":")[0] not in only:
                continue
            if cols and col not in cols:
                continue
            if rep > 1 and col.startswith("langgraph") and w != "w2":
                continue  # every turn writes the whole conversation: once says how slow that is
            if w.split(":")[0] in ("w1", "w1cli", "pg", "redis") and A.turns:
                argv = argv + ["--turns", str(A.turns)]
            elif rep > 1 and all_turns_once(w, col):
                argv = argv + ["--turns", "500"]
            os.sync()  # nobody pays for what the column before it wrote
            t = time.perf_counter()
            try:
                p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
                o = p.stdout.decode().strip().splitlines()
                r = json.loads(o[-1]) if o else {"failed": p.stderr.decode()[-300:]}
            except subprocess.TimeoutExpired:
                r = {"failed": "over 300 s"}
            wall = time.perf_counter() - t
            record(w, col, rep, r, wall)
            print(rep, w, col, "%.1fs" % wall, {k: (round(v, 3) if isinstance(v, float) else v) for k, v in r.items() if k in ("ms", "s", "turns_per_s", "p50_ms", "at2000_ms", "bytes", "errors", "lost_rows", "failed", "unsupported", "not_installed")}, flush=True)


if __name__ == "__main__":
    main()
