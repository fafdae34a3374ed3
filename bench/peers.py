#!/usr/bin/env python3
"""Peer columns: one process per (peer, workload), one JSON line on stdout.

    python peers.py <peer> <workload> [--turns N] [--secs S] [--same 0|1] [--child K]

Peers are imported from whatever environment runs this file; a missing package
makes the column "not installed", never an error of the whole run.
Below $BENCH_SCRATCH: data in data (gen.py), files in work, one folder per peer.
"""
import argparse, asyncio, base64, gc, json, os, resource, shutil, sqlite3, subprocess, sys, time
from pathlib import Path
from statistics import median

SCRATCH = Path(os.environ.get("BENCH_SCRATCH", "bench-scratch"))
DATA = SCRATCH / "data"
now = time.perf_counter


def cpu():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return u.ru_utime + u.ru_stime


def pct(v, p):
    s = sorted(v)
    return s[round((len(s) - 1) * p)]


def turns(n):
    out = []
    with open(DATA / "turns.jsonl") as f:
        for i, l in enumerate(f):
            if i >= n:
                break
            out.append(json.loads(l)["messages"])
    return out


def messages(n):
    out = []
    for t in turns(10**9):
        out += t
        if len(out) >= n:
            return out[:n]
    return out


def sessions():
    with open(DATA / "sessions.jsonl") as f:
        return [json.loads(l) for l in f]


def du(p):
    p = Path(p)
    if p.is_dir():
        return sum(x.stat().st_size for x in p.rglob("*") if x.is_file())
    return sum(Path(str(p) + s).stat().st_size for s in ("", "-wal", "-journal") if Path(str(p) + s).exists())


def result_text(c):
    return c if isinstance(c, str) else json.dumps(c)


def to_text(msgs):
    """What a user of a store without a transcript builder writes by hand."""
    out = []
    for m in msgs:
        for b in m["content"]:
            if b["type"] == "text":
                out.append("## %s\n%s" % (m["role"].title(), b["text"]))
            elif b["type"] == "tool_use":
                out.append("## Tool: %s (%s)" % (b["name"], b["input"].get("file_path") or b["input"].get("command") or b["input"].get("pattern") or ""))
            elif b["type"] == "tool_result":
                c = b["content"]
                if isinstance(c, str):
                    ls = c.split("\n")
                    if len(ls) > 6:
                        c = "\n".join(ls[:3] + ["(+%d more lines)" % (len(ls) - 6)] + ls[-3:])
                else:
                    c = "(image)"
                out.append("[Result] " + c)
    return "\n\n".join(out)


# ------------------------------------------------------------------ peers
class Peer:
    """open() -> handle state; append(sid, turn); load(sid) -> n; list() -> n; fork(sid); on servers forget(sid)."""
    w1_turns = 2000        # peers whose cost grows with history get fewer
    sample = None          # windows for peers where all 2 000 turns would take too long
    multi = True           # several processes on one store
    can_list = can_fork = True
    note = ""

    def __init__(self, root):
        self.root = Path(root); self.root.mkdir(parents=True, exist_ok=True)
        self.path = self.root / "store.db"

    def size(self):
        return du(self.path)

    def close(self):
        pass

    def count(self):
        return None


class Async(Peer):
    def __init__(self, root):
        super().__init__(root)
        self.loop = asyncio.new_event_loop()

    def run(self, c):
        return self.loop.run_until_complete(c)


class OpenAISqlite(Async):
    """openai-agents SQLiteSession"""
    can_list = can_fork = False
    note = "no list or fork in its API"

    def open(self):
        from agents import SQLiteSession
        self.C = SQLiteSession; self.s = {}

    def sess(self, sid):
        if sid not in self.s:
            self.s[sid] = self.C(sid, str(self.path))
        return self.s[sid]

    def append(self, sid, t):
        self.run(self.sess(sid).add_items(t))

    def load(self, sid):
        return self.run(self.sess(sid).get_items())

    def forget(self, sid):
        self.run(self.sess(sid).clear_session())

    def close(self):
        for s in self.s.values():
            s.close()

    def count(self):
        return sqlite3.connect(self.path).execute("select count(*) from agent_messages").fetchone()[0]


class OpenAIAdvanced(OpenAISqlite):
    """openai-agents AdvancedSQLiteSession"""
    can_fork = True
    note = "fork = create_branch_from_turn (copies structure rows up to a user turn)"

    def open(self):
        from agents.extensions.memory import AdvancedSQLiteSession
        self.C = lambda sid, p: AdvancedSQLiteSession(session_id=sid, db_path=p, create_tables=True); self.s = {}

    def fork(self, sid):
        n = sqlite3.connect(self.path).execute("select max(branch_turn_number) from message_structure").fetchone()[0]
        s = self.sess(sid)
        t = now(); self.run(s.create_branch_from_turn(n)); return (now() - t) * 1e3


class OpenAISQLAlchemy(OpenAISqlite):
    """openai-agents SQLAlchemySession on sqlite+aiosqlite"""
    def open(self):
        from agents.extensions.memory import SQLAlchemySession
        from sqlalchemy.ext.asyncio import create_async_engine
        self.eng = create_async_engine(self.url()); self.s = {}
        self.C = lambda sid, p: SQLAlchemySession(sid, engine=self.eng, create_tables=True)

    def url(self):
        return "sqlite+aiosqlite:///%s" % self.path

    def close(self):
        self.run(self.eng.dispose())


class OpenAISQLAlchemyPG(OpenAISQLAlchemy):
    """openai-agents SQLAlchemySession on PostgreSQL (asyncpg)"""
    def url(self):
        return "postgresql+asyncpg://" + os.environ["BENCH_PG"].split("://", 1)[1]

    def size(self):
        return None

    def count(self):
        return None


class OpenAIRedis(OpenAISqlite):
    """openai-agents RedisSession"""
    def open(self):
        from agents.extensions.memory import RedisSession
        self.s = {}
        self.C = lambda sid, p: RedisSession.from_url(sid, url=os.environ["BENCH_REDIS"])

    def close(self):
        for s in self.s.values():
            self.run(s.close())

    def size(self):
        return None

    def count(self):
        return None


class Axio(Async):
    """axio SQLiteContextStore"""
    note = "one commit per message, 6 per turn"

    def open(self):
        from axio.messages import Message
        from axio_context_sqlite.store import SQLiteContextStore, connect
        self.M, self.S = Message, SQLiteContextStore
        self.conn = self.run(connect(self.path)); self.s = {}

    def sess(self, sid):
        if sid not in self.s:
            self.s[sid] = self.S(self.conn, sid, "/p")
        return self.s[sid]

    def conv(self, m):
        c = []
        for b in m["content"]:
            if b["type"] == "tool_result" and not isinstance(b["content"], str):
                inner = [x if x["type"] == "text" else {"type": "image", "media_type": x["source"]["media_type"], "data": x["source"]["data"]} for x in b["content"]]
                b = dict(b, content=inner)
            c.append(b)
        return self.M.from_dict({"role": m["role"], "content": c})

    def append(self, sid, t):
        s = self.sess(sid)

        async def go():
            for m in t:
                await s.append(self.conv(m))
        self.run(go())

    def load(self, sid):
        return self.run(self.sess(sid).get_history())

    def plain(self, hist):
        return [m.to_dict() for m in hist]

    def list(self):
        return len(self.run(self.sess("x").list_sessions()))

    def fork(self, sid):
        t = now(); self.run(self.sess(sid).fork()); return (now() - t) * 1e3

    def close(self):
        self.run(self.conn.close())

    def count(self):
        return sqlite3.connect(self.path).execute("select count(*) from axio_context_messages").fetchone()[0]


class Cllm(Peer):
    """cllm ConversationManager (one JSON file per conversation, rewritten per save)"""
    can_fork = False
    sample = [100, 500, 1000, 2000]
    note = "no fsync; whole file rewritten per turn; no locking"

    def __init__(self, root):
        super().__init__(root); self.path = self.root / "conv"

    def open(self):
        from cllm.conversation import ConversationManager
        self.m = ConversationManager(conversations_path=self.path); self.s = {}

    def sess(self, sid):
        if sid not in self.s:
            self.s[sid] = self.m.load(sid) if self.m.exists(sid) else self.m.create(sid, "m")
        return self.s[sid]

    def append(self, sid, t, save=True, reload=False):
        c = self.m.load(sid) if reload and self.m.exists(sid) else self.sess(sid)
        for m in t:
            b = m["content"]
            c.add_message(m["role"], b[0]["text"] if b[0]["type"] == "text" else json.dumps(b))
        if save:
            self.m.save(c)

    def load(self, sid):
        return self.m.load(sid).messages

    def list(self):
        return len(self.m.list_conversations())

    def count(self):
        n = 0
        for p in self.path.glob("*.json"):
            try:
                n += len(json.loads(p.read_text())["messages"])
            except ValueError:
                self.corrupt = getattr(self, "corrupt", 0) + 1     # two writers share one temporary file name
        return n


class LangGraphSqlite(Peer):
    """langgraph SqliteSaver, messages state, durability="exit" (its cheapest: one checkpoint per turn)"""
    w1_turns = 400
    can_fork = False
    durability = "exit"
    note = "every checkpoint holds the whole message list: capped at %d turns" % w1_turns

    def saver(self):
        from langgraph.checkpoint.sqlite import SqliteSaver
        return SqliteSaver(sqlite3.connect(str(self.path), check_same_thread=False))

    def state(self):
        from langgraph.graph import MessagesState
        return MessagesState

    def open(self):
        from langgraph.graph import START, END, StateGraph
        self.pending = []
        sv = self.sv = self.saver()
        g = StateGraph(self.state())
        g.add_node("agent", lambda s: {"messages": self.pending})
        g.add_edge(START, "agent"); g.add_edge("agent", END)
        self.g = g.compile(checkpointer=sv)
        self.n = 0

    def lc(self, m):
        from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
        b = m["content"][0]; self.n += 1; i = "m%d-%d" % (os.getpid(), self.n)
        if b["type"] == "tool_use":
            return AIMessage(content="", id=i, tool_calls=[{"id": b["id"], "name": b["name"], "args": b["input"]}])
        if b["type"] == "tool_result":
            return ToolMessage(content=result_text(b["content"]), id=i, tool_call_id=b["tool_use_id"])
        return (HumanMessage if m["role"] == "user" else AIMessage)(content=b["text"], id=i)

    def append(self, sid, t):
        ms = [self.lc(m) for m in t]
        self.pending = ms[1:]
        self.g.invoke({"messages": ms[:1]}, {"configurable": {"thread_id": sid}}, durability=self.durability)

    def load(self, sid):
        return self.g.get_state({"configurable": {"thread_id": sid}}).values["messages"]

    def list(self):
        # newest first, one row per thread, preview from the stored state
        seen = {}
        for c in self.sv.list(None):
            k = c.config["configurable"]["thread_id"]
            if k not in seen:
                ms = c.checkpoint["channel_values"].get("messages", [])
                seen[k] = (len(ms), ms[0].content[:80] if ms else "")
        return len(seen)

    def close(self):
        self.sv.conn.close()


class LangGraphSqliteDefault(LangGraphSqlite):
    """langgraph SqliteSaver, durability="sync" (a checkpoint per step)"""
    durability = "sync"
    w1_turns = 200


class LangGraphDelta(LangGraphSqlite):
    """langgraph SqliteSaver with the beta DeltaChannel"""
    w1_turns = 400
    durability = "sync"
    can_list = False

    def state(self):
        from typing import Annotated
        from typing_extensions import TypedDict
        from langgraph.channels import DeltaChannel

        def red(s, ws):
            out = list(s or [])
            for w in ws:
                out.extend(w if isinstance(w, list) else [w])
            return out

        class S(TypedDict):
            messages: Annotated[list, DeltaChannel(red)]
        globals()["DeltaChannel"] = DeltaChannel
        S.__annotations__["messages"] = Annotated[list, DeltaChannel(red)]
        return S


class LangGraphPG(LangGraphSqlite):
    """langgraph PostgresSaver, durability="exit\""""
    can_list = False
    w1_turns = 200

    def saver(self):
        from langgraph.checkpoint.postgres import PostgresSaver
        import psycopg
        from psycopg.rows import dict_row
        self.pgc = psycopg.Connection.connect(os.environ["BENCH_PG"], autocommit=True, prepare_threshold=0, row_factory=dict_row)
        s = PostgresSaver(self.pgc); s.setup()
        return s

    def forget(self, sid):
        self.sv.delete_thread(sid)

    def size(self):
        return self.pgc.execute("select sum(pg_total_relation_size(c::regclass)) as n from unnest(array['checkpoints','checkpoint_blobs','checkpoint_writes']) c").fetchone()["n"].__int__()

    def close(self):
        pass


class Llm(Peer):
    """simonw/llm LogStore (content-addressed message chain)"""
    note = "LogStore.append; the CLI's log() walks the whole chain on every turn"

    def open(self):
        import sqlite_utils
        from llm.logs import LogStore
        from llm.parts import Message, TextPart, ToolCallPart, ToolResultPart
        self.k = (Message, TextPart, ToolCallPart, ToolResultPart)
        self.db = sqlite_utils.Database(str(self.path))
        self.st = LogStore(self.db)

    def conv(self, m):
        M, T, TC, TR = self.k
        p = []
        for b in m["content"]:
            if b["type"] == "text":
                p.append(T(text=b["text"]))
            elif b["type"] == "tool_use":
                p.append(TC(name=b["name"], arguments=b["input"], tool_call_id=b["id"]))
            else:
                p.append(TR(name="t", output=result_text(b["content"]), tool_call_id=b["tool_use_id"]))
        return M(role=m["role"], parts=p)

    def append(self, sid, t):
        ms = [self.conv(m) for m in t]
        with self.db.atomic():
            self.st.ensure_thread(sid, name=sid)
            self.st.append(sid, ms)

    def load(self, sid):
        return self.st.thread_messages(sid)

    def list(self):
        # the CLI lists turns, not threads; threads newest first with a count needs the chain
        from llm.logs import log_rows
        rows = list(self.db.query("select id, name, tip_message_hash from threads order by datetime_utc desc"))
        return len(rows)

    def fork(self, sid):
        t = now(); self.st.fork(self.st.thread_tip(sid), forked_from=sid); return (now() - t) * 1e3

    def count(self):
        return self.db["parts"].count


class LangChainSQL(Peer):
    """LangChain SQLChatMessageHistory (sqlite)"""
    can_list = can_fork = False
    note = "no index on session_id"

    def open(self):
        from langchain_community.chat_message_histories import SQLChatMessageHistory
        from sqlalchemy import create_engine
        self.eng = create_engine("sqlite:///%s" % self.path); self.C = SQLChatMessageHistory; self.s = {}; self.n = 0

    lc = LangGraphSqlite.lc

    def sess(self, sid):
        if sid not in self.s:
            self.s[sid] = self.C(sid, connection=self.eng)
        return self.s[sid]

    def append(self, sid, t):
        self.sess(sid).add_messages([self.lc(m) for m in t])

    def load(self, sid):
        return self.sess(sid).messages

    def forget(self, sid):
        self.sess(sid).clear()

    def count(self):
        return sqlite3.connect(self.path).execute("select count(*) from message_store").fetchone()[0]


class LangChainPG(LangChainSQL):
    """LangChain PostgresChatMessageHistory (langchain-postgres)"""
    def open(self):
        from langchain_postgres import PostgresChatMessageHistory
        import psycopg, uuid
        self.conn = psycopg.connect(os.environ["BENCH_PG"]); self.s = {}; self.n = 0
        PostgresChatMessageHistory.create_tables(self.conn, "langchain_bench")
        name = lambda sid: str(uuid.uuid5(uuid.NAMESPACE_OID, sid))     # it takes nothing else
        self.C = lambda sid, connection: PostgresChatMessageHistory("langchain_bench", name(sid), sync_connection=self.conn)
        self.eng = None

    def size(self):
        return None

    def close(self):
        self.conn.close()


class LangChainRedis(LangChainSQL):
    """LangChain RedisChatMessageHistory (a list per session, a round trip per message)"""
    def open(self):
        from langchain_community.chat_message_histories import RedisChatMessageHistory
        self.C = lambda sid, connection: RedisChatMessageHistory(sid, url=os.environ["BENCH_REDIS"])
        self.eng = None; self.s = {}; self.n = 0

    def size(self):
        return None


PEERS = {
    "openai_sqlite": OpenAISqlite, "openai_advanced": OpenAIAdvanced, "openai_sqlalchemy": OpenAISQLAlchemy,
    "openai_pg": OpenAISQLAlchemyPG, "openai_redis": OpenAIRedis,
    "langgraph_sqlite": LangGraphSqlite, "langgraph_sqlite_sync": LangGraphSqliteDefault, "langgraph_delta": LangGraphDelta,
    "langgraph_pg": LangGraphPG, "axio": Axio, "cllm": Cllm, "llm": Llm, "langchain_sql": LangChainSQL,
    "langchain_pg": LangChainPG, "langchain_redis": LangChainRedis,
}


# ------------------------------------------------------------------ workloads
def fresh(name, w):
    d = SCRATCH / "work" / name / w
    shutil.rmtree(d, ignore_errors=True)
    return d


def w1(P, name, a):
    n = a.turns or P.w1_turns
    ts = turns(n)
    p = P(fresh(name, "w1")); p.open()
    sid = "w1-%d" % os.getpid()
    lat, at = [], {}
    c0, t0 = cpu(), now()
    if P.sample and not a.turns:      # O(history) store: time windows, fill the rest without saving
        for i, t in enumerate(ts):
            timed = any(s - 6 <= i < s for s in P.sample)
            if not timed:
                p.append(sid, t, save=False); continue
            x = now(); p.append(sid, t); lat.append((now() - x) * 1e3); at[i] = lat[-1]
        tot = None
    else:
        for i, t in enumerate(ts):
            x = now(); p.append(sid, t); lat.append((now() - x) * 1e3); at[i] = lat[-1]
        tot = now() - t0
    c = cpu() - c0
    win = lambda lo, hi: (median([at[i] for i in range(lo, hi) if i in at]) if any(i in at for i in range(lo, hi)) and max(at) >= hi - 1 else None)
    r = {"turns": len(ts), "total_s": tot, "turns_per_s": len(ts) / tot if tot else None, "p50_ms": median(lat), "p99_ms": pct(lat, .99), "max_ms": max(lat),
         "at100_ms": win(80, 120) or win(94, 100), "at200_ms": win(180, 200), "at400_ms": win(380, 400), "at500_ms": win(480, 520) or win(494, 500), "at1000_ms": win(980, 1020) or win(994, 1000),
         "at2000_ms": win(1960, 2000), "cpu_s": c, "bytes": p.size()}
    if hasattr(p, "forget") and a.workload in ("pg", "redis"):
        p.forget(sid)
    p.close()
    r["bytes"] = p.size() or r["bytes"]
    return r


def fill(p, sid, ms):
    """Puts messages in, untimed: at once where every append would write all that is there."""
    step = len(ms) if isinstance(p, (Cllm, LangGraphSqlite)) else 6
    for i in range(0, len(ms), step):
        p.append(sid, ms[i:i + step])


def loads(p, sid):
    """How many messages were loaded, and the times of five loads."""
    v = []
    for _ in range(5):
        gc.collect(); t = now(); h = p.load(sid); v.append((now() - t) * 1e3); n = len(h); del h
    return n, v


def filled(P, name):
    d = SCRATCH / "work" / name / "w2"
    ok = d / "ready"
    p = P(d)
    if ok.exists():
        p.keep = True
    else:
        shutil.rmtree(d, ignore_errors=True); p = P(d)
    p.open()
    if not ok.exists():
        fill(p, "w2", messages(10_000))
        p.close(); p = P(d); p.keep = True; p.open()
        (d / "ready").write_text("1")
    return p


def w2(P, name, a):
    p = filled(P, name)
    n, v = loads(p, "w2")
    p.close()
    return {"messages": n, "ms": median(v), "first_ms": v[0]}


def server(P, name, a):
    """A store on a server: appending turns, then loading 10 000 messages, as our own `pg` and `redis` do."""
    r = w1(P, name, a)
    p = P(fresh(name, "server")); p.open()
    sid = "w2-%d" % os.getpid()
    fill(p, sid, messages(10_000))
    n, v = loads(p, sid)
    p.forget(sid); p.close()
    if n != 10_000:
        return {"failed": "%d messages were loaded" % n}
    return dict(r, w2_ms=median(v))


pg = redis = server


def w3(P, name, a):
    if not P.can_list:
        return {"unsupported": P.note or "no listing"}
    d = SCRATCH / "work" / name / "w3"
    ok = d / "ready"
    if not ok.exists():
        shutil.rmtree(d, ignore_errors=True)
        p = P(d); p.open()
        # setup, not timed: durability off where the peer exposes its connection
        for c in ("conn", "db", "sv"):
            x = getattr(p, c, None)
            try:
                x = getattr(x, "conn", x)
                r = x.execute("PRAGMA synchronous=OFF")
                if asyncio.iscoroutine(r) or hasattr(r, "__await__"):
                    p.run(r)
            except Exception:
                pass
        for s in sessions():
            p.append(s["id"], s["messages"])
        p.close(); ok.write_text("1")
    v = []
    for _ in range(5):
        p = P(d); p.keep = True; p.open()
        t = now(); n = p.list(); v.append((now() - t) * 1e3); p.close()
    return {"sessions": n, "ms": median(v), "first_ms": v[0]}


def w4(P, name, a):
    if not P.can_fork:
        return {"unsupported": P.note or "no fork"}
    filled(P, name).close()
    v = []
    for i in range(5):
        d = SCRATCH / "work" / name / "w4"
        shutil.rmtree(d, ignore_errors=True); shutil.copytree(SCRATCH / "work" / name / "w2", d)
        p = P(d); p.keep = True; p.open(); p.load("w2")
        v.append(p.fork("w2")); p.close()
    return {"ms": median(v)}


def w6(P, name, a):
    p = filled(P, name)
    v = []
    for _ in range(5):
        gc.collect(); t = now()
        h = p.load("w2")
        if hasattr(p, "plain"):
            h = p.plain(h)
        if name.startswith(("openai", "axio")):
            n = len(to_text(h))
        else:
            n = len("\n\n".join("## %s\n%s" % (getattr(m, "type", None) or getattr(m, "role", None) or m["role"], getattr(m, "content", None) or str(m)) for m in h))
        v.append((now() - t) * 1e3); del h
    p.close()
    return {"context_bytes": n, "ms": median(v), "note": "get history, join in Python"}


def w7(P, name, a):
    """No Python peer ingests agent JSONL; this is json.loads per line + the peer's append per turn."""
    v = []
    for _ in range(a.reps):
        p = P(fresh(name, "w7")); p.open()
        t = now(); batch = []; n = 0
        with open(DATA / "transcript.jsonl") as f:
            for l in f:
                o = json.loads(l)
                if o["type"] in ("user", "assistant"):
                    m = o["message"]; c = m["content"]
                    batch.append({"role": m["role"], "content": [{"type": "text", "text": c}] if isinstance(c, str) else c}); n += 1
                elif batch:
                    p.append("w7", batch); batch = []
        if batch:
            p.append("w7", batch)
        v.append(now() - t); p.close()
    s = median(v)
    return {"events": n, "s": s, "mb_per_s": (DATA / "transcript.jsonl").stat().st_size / 1e6 / s, "note": "json.loads per line, one append per turn"}


def w8(P, name, a):
    d = SCRATCH / "work" / name / "w8"
    if a.child is None:
        shutil.rmtree(d, ignore_errors=True)
        p = P(d); p.open(); p.append("seed", turns(1)[0]); p.close()
        ks = [subprocess.Popen([sys.executable, __file__, name, "w8", "--child", str(i), "--secs", str(a.secs), "--same", str(a.same)],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for i in range(8)]
        # start line: imports take seconds, so children wait until all of them are ready
        while len(list(d.glob("ready.*"))) < sum(k.poll() is None for k in ks):
            time.sleep(0.02)
        (d / "go").write_text("1")
        outs = []
        for k in ks:
            o = k.communicate()[0]
            outs.append(json.loads(o.decode().strip().splitlines()[-1]) if o.strip() else {"ok": 0, "errors": 1, "texts": {"died": 1}, "p99_ms": 0, "max_ms": 0})
        p = P(d); p.keep = True; p.open()
        rows = p.count()
        tx = {}
        for o in outs:
            for k, v in o["texts"].items():
                tx[k] = tx.get(k, 0) + v
        ok = sum(o["ok"] for o in outs)
        return {"corrupt_files": getattr(p, "corrupt", 0), "turns_per_s": ok / a.secs, "ok": ok, "errors": sum(o["errors"] for o in outs), "error_texts": tx,
                "lost_rows": None if rows is None else (ok + 1) * 6 - rows, "p99_ms": max(o["p99_ms"] for o in outs), "max_ms": max(o["max_ms"] for o in outs),
                "min_share": min(o["ok"] for o in outs), "max_share": max(o["ok"] for o in outs)}
    ts = turns(200)
    p = P(d); p.keep = True; p.open()
    sid = "s0" if a.same else "s%d" % a.child
    ok = err = 0; lat = []; tx = {}
    try:
        p.load(sid)
    except Exception:
        pass
    (d / ("ready.%d" % a.child)).write_text("1")
    while not (d / "go").exists():
        time.sleep(0.005)
    start = now()
    while now() - start < a.secs:
        t = ts[ok % 200]
        if name == "llm":     # unique content, or a content-addressed store would deduplicate
            t = json.loads(json.dumps(t)); t[0]["content"][0]["text"] += " #%d-%d" % (a.child, ok)
        x = now()
        try:
            p.append(sid, t, reload=True) if name == "cllm" else p.append(sid, t); ok += 1
        except Exception as e:
            err += 1; k = (type(e).__name__ + ": " + str(e))[:90]; tx[k] = tx.get(k, 0) + 1
        lat.append((now() - x) * 1e3)
    return {"ok": ok, "errors": err, "texts": tx, "p99_ms": pct(lat, .99), "max_ms": max(lat)}


def w10(P, name, a):
    from cllm.context import ContextCommand, execute_commands
    v = []
    for _ in range(5):
        t = now(); execute_commands([ContextCommand("c%d" % i, "sleep 0.2") for i in range(10)], parallel=True); v.append((now() - t) * 1e3)
    return {"ms": median(v)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("peer", choices=PEERS); ap.add_argument("workload")
    ap.add_argument("--turns", type=int); ap.add_argument("--secs", type=int, default=10)
    ap.add_argument("--same", type=int, default=0); ap.add_argument("--child", type=int); ap.add_argument("--reps", type=int, default=1)
    a = ap.parse_args()
    try:
        r = globals()[a.workload](PEERS[a.peer], a.peer, a)
    except ImportError as e:
        r = {"not_installed": str(e)}
    print(json.dumps(r), flush=True)
    os._exit(0)      # some peers keep non-daemon threads


if __name__ == "__main__":
    main()
