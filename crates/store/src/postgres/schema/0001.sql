-- Version 1. `@schema@` stands for the schema that the store was given.
--
-- Every key begins with the project and, below it, the session: whoever spreads the tables over several servers by
-- project finds all that a call touches in one place.
--
-- There are no foreign keys. Whatever changes a session holds the lock on its row, and what deletes it deletes
-- all that belongs to it; a foreign key would look the session up once more for every event.
--
-- PostgreSQL has no text with a NUL character. Texts of people are escaped (see text.rs); the JSON of an event
-- cannot hold one.

CREATE TABLE @schema@.projects (
  project      text PRIMARY KEY,
  -- The number that was given last. It stays when its session goes.
  last_session integer NOT NULL DEFAULT 0
);

-- Moves on at each activity. Clocks of several machines would not agree on an order.
CREATE SEQUENCE @schema@.activity;

CREATE TABLE @schema@.sessions (
  project      text NOT NULL,
  session      integer NOT NULL,
  name         text NOT NULL,
  worktree     text NOT NULL,
  created_at   text NOT NULL,
  active       bigint NOT NULL DEFAULT nextval('@schema@.activity'),
  completed    boolean,
  duration_ms  bigint NOT NULL DEFAULT 0,
  cost_usd     double precision NOT NULL DEFAULT 0,
  tokens_in    bigint NOT NULL DEFAULT 0,
  tokens_out   bigint NOT NULL DEFAULT 0,
  -- Counted over the events. They are numbered without gaps, so the last number is how many there are.
  last_seq     bigint NOT NULL DEFAULT 0,
  messages     bigint NOT NULL DEFAULT 0,
  -- The message that the next event may continue: 1 nothing, 2 a prompt, 3 results of tools, 4 the agent's.
  open_message smallint NOT NULL DEFAULT 1,
  preview      text,
  agent        text,
  model        text,
  -- How much there is to tell of the events, in characters.
  told         bigint NOT NULL DEFAULT 0,
  -- What the model had before it when the last turn ended; nothing once something came after that.
  context_tokens bigint,
  noted_run    text,
  -- How often it was cleared: below one such number, an event that was read stays what it is.
  generation   bigint NOT NULL DEFAULT 0,
  -- The lease that was given out last; it stays when it is given back, so that an older one is never taken for it.
  lease        text,
  -- Who has it; nothing once it is given back. And until when, unless it is renewed.
  lease_holder text,
  lease_until  timestamptz,
  -- Until when somebody wants to hear of changes, unless they renew it.
  watched_until timestamptz,
  PRIMARY KEY (project, session)
-- With room on each page for the next version of a row: most turns then write no index.
) WITH (fillfactor = 60);
CREATE INDEX sessions_by_activity ON @schema@.sessions (project, active DESC);
-- A name may be longer than an index can hold.
CREATE INDEX sessions_by_name ON @schema@.sessions (project, md5(name));
CREATE INDEX sessions_with_noted_run ON @schema@.sessions (project, session) WHERE noted_run IS NOT NULL;
-- Renewing a lease writes no index.
CREATE INDEX sessions_with_lease ON @schema@.sessions (project, session) WHERE lease_holder IS NOT NULL;

CREATE TABLE @schema@.events (
  project text NOT NULL,
  session integer NOT NULL,
  seq     bigint NOT NULL,
  kind    text NOT NULL,
  -- The text that was given, to the byte.
  json    text NOT NULL,
  -- The same for queries; nothing where PostgreSQL cannot say it (a NUL character, half a surrogate pair).
  data    jsonb,
  PRIMARY KEY (project, session, seq)
);
-- One entry per turn: what the user asked is told beside every summary.
CREATE INDEX events_with_prompt ON @schema@.events (project, session, seq) WHERE kind IN ('UserMessage', 'Message');
-- For questions about what is in the events: `data @> …`. What a turn adds is put on a list, and sorted in later.
CREATE INDEX events_by_data ON @schema@.events USING gin (data jsonb_path_ops);
-- Several times faster than what PostgreSQL does by itself; not every server is built with it.
DO $$ BEGIN
  ALTER TABLE @schema@.events ALTER json SET COMPRESSION lz4, ALTER data SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN NULL;
END $$;

CREATE TABLE @schema@.compactions (
  project    text NOT NULL,
  session    integer NOT NULL,
  after_seq  bigint NOT NULL,
  summary    text NOT NULL,
  created_at text NOT NULL,
  -- How much there is to tell of the events up to there, in characters.
  covers     bigint NOT NULL,
  PRIMARY KEY (project, session, after_seq)
);

CREATE TABLE @schema@.marks (
  project text NOT NULL,
  name    text NOT NULL,
  session integer NOT NULL,
  note    text NOT NULL
);
CREATE UNIQUE INDEX marks_by_name ON @schema@.marks (project, md5(name));
CREATE INDEX marks_by_session ON @schema@.marks (project, session);

-- What has been done, with the answer. A client whose connection broke before it heard the answer asks again
-- with the same operation, and is told what it was instead of doing it twice. Operations are UUIDs of version 7,
-- so they are ordered by their time.
CREATE TABLE @schema@.operations (
  project   text NOT NULL,
  operation uuid NOT NULL,
  answer    bigint[] NOT NULL,
  PRIMARY KEY (project, operation)
);

-- The answer of an operation that is asked for again; nothing if it was not done yet. An earlier try may still
-- be at work when this is asked. Then noting the operation a second time fails, and the client comes once more.
CREATE FUNCTION @schema@.answer_of(in_project text, in_operation uuid, in_repeated boolean) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
  IF NOT in_repeated THEN RETURN NULL; END IF;
  RETURN (SELECT answer FROM @schema@.operations WHERE project = in_project AND operation = in_operation);
END $$;

-- Takes operations away that nobody asks for again after a day, not all at once.
CREATE FUNCTION @schema@.forget_operations(in_project text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM @schema@.operations WHERE project = in_project AND operation = ANY (ARRAY(
    SELECT operation FROM @schema@.operations WHERE project = in_project AND operation < (
      lpad(to_hex((extract(epoch FROM now() - interval '1 day') * 1000)::bigint), 12, '0')
      || '00000000000000000000')::uuid
    LIMIT 1000));
END $$;

-- Remembers that an operation is done. Part of its transaction.
CREATE FUNCTION @schema@.note_done(in_project text, in_operation uuid, in_answer bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO @schema@.operations (project, operation, answer) VALUES (in_project, in_operation, in_answer);
  -- What is acknowledged is on the disk, also where the server was told that this is not needed.
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- The channel on which one hears of changes to a session. A hash: a project may have a longer name than a channel.
CREATE FUNCTION @schema@.channel_of(in_project text, in_session integer) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT 'azureal_' || md5(format('@schema@ %s %s', in_session, in_project))
$$;

CREATE FUNCTION @schema@.listen_to(in_project text, in_session integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('LISTEN %I', @schema@.channel_of(in_project, in_session));
END $$;

-- Tells whoever listens that a session has changed, once that is committed. One commit of a server that does this waits
-- for the other, so it is for sessions that somebody watches.
CREATE FUNCTION @schema@.ring(in_project text, in_session integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify(@schema@.channel_of(in_project, in_session), '');
END $$;

-- Waits until nobody else makes sessions in the project.
CREATE FUNCTION @schema@.lock_project(in_project text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO @schema@.projects (project) VALUES (in_project) ON CONFLICT (project) DO NOTHING;
  PERFORM 1 FROM @schema@.projects WHERE project = in_project FOR UPDATE;
END $$;

CREATE FUNCTION @schema@.as_jsonb(in_json text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  RETURN in_json::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded OR feature_not_supported THEN
  RETURN NULL;
END $$;

-- Adds what is not negative, and stops at what a bigint can hold.
CREATE FUNCTION @schema@.plus(in_one bigint, in_other bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
  SELECT LEAST(in_one, 9223372036854775807 - in_other) + in_other
$$;

-- Makes a session. The caller has locked the project.
CREATE FUNCTION @schema@.insert_session(in_project text, in_name text, in_worktree text, in_created_at text)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  number integer;
BEGIN
  UPDATE @schema@.projects SET last_session = last_session + 1 WHERE project = in_project
  RETURNING last_session INTO number;
  INSERT INTO @schema@.sessions (project, session, name, worktree, created_at)
  VALUES (in_project, number, coalesce(in_name, 'S' || number), in_worktree, in_created_at);
  RETURN number;
END $$;

CREATE FUNCTION @schema@.create_session(
  in_project text, in_operation uuid, in_repeated boolean, in_name text, in_worktree text, in_created_at text)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  done bigint[];
  number integer;
BEGIN
  PERFORM @schema@.lock_project(in_project);
  done := @schema@.answer_of(in_project, in_operation, in_repeated);
  IF done IS NOT NULL THEN RETURN done[1]; END IF;
  number := @schema@.insert_session(in_project, in_name, in_worktree, in_created_at);
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[number]);
  RETURN number;
END $$;

-- The session of a name that was active last.
CREATE FUNCTION @schema@.newest_called(in_project text, in_name text) RETURNS integer
LANGUAGE sql AS $$
  SELECT session FROM @schema@.sessions
  WHERE project = in_project AND md5(name) = md5(in_name) AND name = in_name
  ORDER BY active DESC LIMIT 1
$$;

-- To ask again finds what was made, so this needs no operation.
CREATE FUNCTION @schema@.find_or_create(
  in_project text, in_name text, in_worktree text, in_created_at text)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  number integer := @schema@.newest_called(in_project, in_name);
BEGIN
  IF number IS NOT NULL THEN RETURN number; END IF;
  PERFORM @schema@.lock_project(in_project);
  -- Somebody may have made it meanwhile.
  number := @schema@.newest_called(in_project, in_name);
  IF number IS NOT NULL THEN RETURN number; END IF;
  RETURN @schema@.insert_session(in_project, in_name, in_worktree, in_created_at);
END $$;

-- Adds a turn to a session. Outcomes: done, absent (no such session), fenced (another lease was given out since
-- in_lease), moved (it does not end at in_after, but at ends_at).
--
-- What the events do to the counts depends on the message that is open at the end of the session and on whether
-- there is a preview yet: in_added, in_opens and in_previews hold the outcome for each of these cases, in pairs
-- of without and with a preview.
--
-- The texts are taken for what jsonb can hold until the client has to ask again: to be ready for others, one by one,
-- costs some 20 microseconds of 260. To call functions for what can be said here costs about as much.
CREATE FUNCTION @schema@.append_turn(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer, in_after bigint, in_lease text,
  in_kinds text[], in_events text[], in_added bigint[], in_opens smallint[], in_previews text[],
  in_agent text, in_model text, in_told bigint, in_context_tokens bigint,
  in_completed boolean, in_duration_ms bigint, in_cost_usd double precision,
  in_tokens_in bigint, in_tokens_out bigint, in_mark text, in_note text,
  OUT outcome text, OUT starts_at bigint, OUT ends_at bigint)
LANGUAGE plpgsql AS $$
DECLARE
  done bigint[];
  events_added bigint := cardinality(in_events);
  has_events boolean := events_added > 0;
  is_watched boolean;
BEGIN
  IF in_repeated THEN
    -- First the row: an earlier try may be about to commit, and what it changes would be taken for somebody else's.
    PERFORM 1 FROM @schema@.sessions WHERE project = in_project AND session = in_session FOR UPDATE;
    done := @schema@.answer_of(in_project, in_operation, in_repeated);
    IF done IS NOT NULL THEN
      outcome := 'done'; starts_at := done[2]; ends_at := done[3];
      RETURN;
    END IF;
  END IF;
  WITH changed AS (
    UPDATE @schema@.sessions SET
      last_seq = last_seq + events_added,
      messages = messages + in_added[2 * open_message - (preview IS NULL)::integer],
      open_message = in_opens[2 * open_message - (preview IS NULL)::integer],
      preview = coalesce(preview, in_previews[2 * open_message - 1]),
      agent = coalesce(in_agent, agent),
      model = coalesce(in_model, model),
      told = @schema@.plus(told, in_told),
      context_tokens = CASE WHEN has_events THEN in_context_tokens ELSE context_tokens END,
      -- The session at the front of the list stays there: no index to write.
      active = CASE WHEN NOT has_events OR active = (SELECT max(newest.active) FROM @schema@.sessions AS newest
                                                     WHERE newest.project = in_project)
               THEN active ELSE nextval('@schema@.activity') END,
      completed = CASE WHEN has_events THEN in_completed ELSE completed END,
      duration_ms = @schema@.plus(duration_ms, in_duration_ms),
      cost_usd = LEAST(cost_usd + in_cost_usd, 1e300),
      tokens_in = @schema@.plus(tokens_in, in_tokens_in),
      tokens_out = @schema@.plus(tokens_out, in_tokens_out)
    WHERE project = in_project AND session = in_session AND (in_after IS NULL OR last_seq = in_after)
      AND (in_lease IS NULL OR lease = in_lease)
    RETURNING last_seq - events_added + 1 AS first_added, last_seq, watched_until
  ), added AS (
    INSERT INTO @schema@.events (project, session, seq, kind, json, data)
    SELECT in_project, in_session, first_added - 1 + number, kind, json,
      CASE WHEN in_repeated THEN @schema@.as_jsonb(json) ELSE json::jsonb END
    FROM changed, unnest(in_kinds, in_events) WITH ORDINALITY AS new (kind, json, number)
  ), noted AS (
    INSERT INTO @schema@.operations (project, operation, answer)
    SELECT in_project, in_operation, ARRAY[in_session, first_added, last_seq] FROM changed
  )
  SELECT first_added, last_seq, has_events AND watched_until > clock_timestamp()
  INTO starts_at, ends_at, is_watched FROM changed;
  IF NOT FOUND THEN
    SELECT last_seq, CASE WHEN lease IS DISTINCT FROM coalesce(in_lease, lease) THEN 'fenced' ELSE 'moved' END
    INTO ends_at, outcome FROM @schema@.sessions
    WHERE project = in_project AND session = in_session;
    IF NOT FOUND THEN outcome := 'absent'; END IF;
    RETURN;
  END IF;
  IF in_mark IS NOT NULL THEN
    INSERT INTO @schema@.marks (project, name, session, note)
    VALUES (in_project, in_mark, in_session, in_note)
    ON CONFLICT (project, md5(name)) DO UPDATE SET session = EXCLUDED.session, note = EXCLUDED.note;
  END IF;
  IF is_watched THEN PERFORM @schema@.ring(in_project, in_session); END IF;
  IF random() < 0.005 THEN PERFORM @schema@.forget_operations(in_project); END IF;
  -- As in note_done.
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  outcome := 'done';
END $$;

-- Outcomes: done, marked (in_mark is set: by in_session, with in_note).
CREATE FUNCTION @schema@.create_with(
  in_project text, in_operation uuid, in_repeated boolean, in_name text, in_worktree text, in_created_at text,
  in_kinds text[], in_events text[], in_added bigint[], in_opens smallint[], in_previews text[],
  in_agent text, in_model text, in_told bigint, in_context_tokens bigint,
  in_completed boolean, in_duration_ms bigint, in_cost_usd double precision,
  in_tokens_in bigint, in_tokens_out bigint, in_mark text, in_note text,
  in_after_seqs bigint[], in_summaries text[], in_compacted_at text[], in_covers bigint[],
  OUT outcome text, OUT number integer, OUT note text)
LANGUAGE plpgsql AS $$
DECLARE
  done bigint[];
BEGIN
  PERFORM @schema@.lock_project(in_project);
  done := @schema@.answer_of(in_project, in_operation, in_repeated);
  IF done IS NOT NULL THEN
    outcome := 'done'; number := done[1];
    RETURN;
  END IF;
  SELECT 'marked', marks.session, marks.note INTO outcome, number, note FROM @schema@.marks
  WHERE marks.project = in_project AND md5(marks.name) = md5(in_mark) AND marks.name = in_mark;
  IF FOUND THEN RETURN; END IF;
  outcome := 'done';
  number := @schema@.insert_session(in_project, in_name, in_worktree, in_created_at);
  PERFORM @schema@.append_turn(in_project, in_operation, in_repeated, number, NULL, NULL, in_kinds, in_events, in_added,
    in_opens, in_previews, in_agent, in_model, in_told,
    -- With a summary the model will have something else before it.
    CASE WHEN cardinality(in_after_seqs) = 0 THEN in_context_tokens END,
    in_completed, in_duration_ms, in_cost_usd, in_tokens_in, in_tokens_out, in_mark, in_note);
  INSERT INTO @schema@.compactions (project, session, after_seq, summary, created_at, covers)
  SELECT in_project, number, after_seq, summary, created_at, covers
  FROM unnest(in_after_seqs, in_summaries, in_compacted_at, in_covers) AS new (after_seq, summary, created_at, covers)
  ON CONFLICT (project, session, after_seq) DO UPDATE
  SET summary = EXCLUDED.summary, created_at = EXCLUDED.created_at;
END $$;

-- Copies what stands up to in_at. Outcomes: done, absent, no_event, and changed where the session was cleared
-- since its events were counted (in_generation; nothing where they were not, and in_at is the end).
CREATE FUNCTION @schema@.fork_session(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer, in_at bigint, in_generation bigint,
  in_messages bigint, in_open smallint, in_preview text, in_agent text, in_model text, in_told bigint,
  in_name text, in_worktree text, in_created_at text,
  OUT outcome text, OUT number integer, OUT last_seq bigint)
LANGUAGE plpgsql AS $$
DECLARE
  origin @schema@.sessions;
  done bigint[];
BEGIN
  SELECT * INTO origin FROM @schema@.sessions
  WHERE project = in_project AND session = in_session FOR SHARE;
  PERFORM @schema@.lock_project(in_project);
  done := @schema@.answer_of(in_project, in_operation, in_repeated);
  IF done IS NOT NULL THEN
    outcome := 'done'; number := done[1];
    RETURN;
  END IF;
  IF origin.session IS NULL THEN
    outcome := 'absent';
    RETURN;
  END IF;
  last_seq := origin.last_seq;
  IF in_generation IS NULL THEN
    in_at := origin.last_seq;
    in_messages := origin.messages; in_open := origin.open_message; in_preview := origin.preview;
    in_agent := origin.agent; in_model := origin.model; in_told := origin.told;
  ELSIF in_at > origin.last_seq THEN
    outcome := 'no_event';
    RETURN;
  ELSIF in_generation <> origin.generation THEN
    outcome := 'changed';
    RETURN;
  END IF;
  outcome := 'done';
  number := @schema@.insert_session(in_project, in_name, in_worktree, in_created_at);
  INSERT INTO @schema@.events (project, session, seq, kind, json, data)
  SELECT in_project, number, seq, kind, json, data FROM @schema@.events
  WHERE project = in_project AND session = in_session AND seq <= in_at;
  INSERT INTO @schema@.compactions (project, session, after_seq, summary, created_at, covers)
  SELECT in_project, number, after_seq, summary, created_at, covers FROM @schema@.compactions
  WHERE project = in_project AND session = in_session AND after_seq <= in_at;
  UPDATE @schema@.sessions SET last_seq = in_at, messages = in_messages, open_message = in_open,
    preview = in_preview, agent = in_agent, model = in_model, told = in_told
  WHERE project = in_project AND session = number;
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[number]);
END $$;

-- Says whether there was such a session.
CREATE FUNCTION @schema@.delete_session(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  is_watched boolean;
BEGIN
  PERFORM 1 FROM @schema@.sessions WHERE project = in_project AND session = in_session FOR UPDATE;
  IF @schema@.answer_of(in_project, in_operation, in_repeated) IS NOT NULL THEN RETURN true; END IF;
  DELETE FROM @schema@.sessions WHERE project = in_project AND session = in_session
  RETURNING watched_until > clock_timestamp() INTO is_watched;
  IF NOT FOUND THEN RETURN false; END IF;
  IF is_watched THEN PERFORM @schema@.ring(in_project, in_session); END IF;
  DELETE FROM @schema@.events WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.compactions WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.marks WHERE project = in_project AND session = in_session;
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[]::bigint[]);
  RETURN true;
END $$;

-- Says whether there is such a session. To clear again clears nothing more, unless somebody has appended since:
-- so this too is done once.
CREATE FUNCTION @schema@.clear_session(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  is_watched boolean;
BEGIN
  PERFORM 1 FROM @schema@.sessions WHERE project = in_project AND session = in_session FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  IF @schema@.answer_of(in_project, in_operation, in_repeated) IS NOT NULL THEN RETURN true; END IF;
  UPDATE @schema@.sessions SET last_seq = 0, messages = 0, open_message = 1, preview = NULL,
    agent = NULL, model = NULL, told = 0, context_tokens = NULL, completed = NULL, generation = generation + 1
  WHERE project = in_project AND session = in_session
  RETURNING watched_until > clock_timestamp() INTO is_watched;
  IF is_watched THEN PERFORM @schema@.ring(in_project, in_session); END IF;
  DELETE FROM @schema@.events WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.compactions WHERE project = in_project AND session = in_session;
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[]::bigint[]);
  RETURN true;
END $$;

-- Says whether there is such a session.
CREATE FUNCTION @schema@.add_tokens(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer, in_tokens_in bigint, in_tokens_out bigint)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM @schema@.sessions WHERE project = in_project AND session = in_session FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  IF @schema@.answer_of(in_project, in_operation, in_repeated) IS NOT NULL THEN RETURN true; END IF;
  UPDATE @schema@.sessions SET
    tokens_in = @schema@.plus(tokens_in, in_tokens_in), tokens_out = @schema@.plus(tokens_out, in_tokens_out)
  WHERE project = in_project AND session = in_session;
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[]::bigint[]);
  RETURN true;
END $$;

-- Outcomes: done, absent, no_event. To lay it again lays the same.
CREATE FUNCTION @schema@.add_compaction(
  in_project text, in_session integer, in_after_seq bigint, in_summary text, in_created_at text, in_covers bigint,
  OUT outcome text, OUT last_seq bigint)
LANGUAGE plpgsql AS $$
BEGIN
  SELECT sessions.last_seq INTO last_seq FROM @schema@.sessions
  WHERE project = in_project AND session = in_session FOR UPDATE;
  IF NOT FOUND THEN
    outcome := 'absent';
  ELSIF in_after_seq < 1 OR in_after_seq > last_seq THEN
    outcome := 'no_event';
  ELSE
    INSERT INTO @schema@.compactions (project, session, after_seq, summary, created_at, covers)
    VALUES (in_project, in_session, in_after_seq, in_summary, in_created_at, in_covers)
    ON CONFLICT (project, session, after_seq) DO UPDATE
    SET summary = EXCLUDED.summary, created_at = EXCLUDED.created_at, covers = EXCLUDED.covers;
    -- The model will have something else before it.
    UPDATE @schema@.sessions SET context_tokens = NULL WHERE project = in_project AND session = in_session;
    outcome := 'done';
  END IF;
END $$;

-- Outcomes: done, none (there was no such summary), absent.
CREATE FUNCTION @schema@.remove_compaction(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer, in_after_seq bigint)
RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM @schema@.sessions WHERE project = in_project AND session = in_session FOR UPDATE;
  IF NOT FOUND THEN RETURN 'absent'; END IF;
  IF @schema@.answer_of(in_project, in_operation, in_repeated) IS NOT NULL THEN RETURN 'done'; END IF;
  DELETE FROM @schema@.compactions
  WHERE project = in_project AND session = in_session AND after_seq = in_after_seq;
  IF NOT FOUND THEN RETURN 'none'; END IF;
  UPDATE @schema@.sessions SET context_tokens = NULL WHERE project = in_project AND session = in_session;
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[]::bigint[]);
  RETURN 'done';
END $$;

-- Says whether there was such a mark.
CREATE FUNCTION @schema@.remove_mark(
  in_project text, in_operation uuid, in_repeated boolean, in_name text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM @schema@.marks
  WHERE project = in_project AND md5(name) = md5(in_name) AND name = in_name FOR UPDATE;
  IF @schema@.answer_of(in_project, in_operation, in_repeated) IS NOT NULL THEN RETURN true; END IF;
  DELETE FROM @schema@.marks WHERE project = in_project AND md5(name) = md5(in_name) AND name = in_name;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[]::bigint[]);
  RETURN true;
END $$;

-- Gives out a lease unless somebody has one. Outcomes: ours, theirs (in_holder has it), absent. To ask again for the
-- same one is answered alike, so this needs no operation. The time is that of the moment, not of the transaction: we
-- may have waited for the row.
CREATE FUNCTION @schema@.take_lease(
  in_project text, in_session integer, in_lease text, in_holder text, in_seconds double precision,
  in_instead_of text,
  OUT outcome text, OUT holder text)
LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    UPDATE @schema@.sessions SET lease = in_lease, lease_holder = in_holder,
      lease_until = clock_timestamp() + make_interval(secs => in_seconds)
    WHERE project = in_project AND session = in_session
      AND (lease_holder IS NULL OR lease_until < clock_timestamp() OR lease = in_lease OR lease = in_instead_of);
    IF FOUND THEN
      outcome := 'ours';
      RETURN;
    END IF;
    SELECT lease_holder INTO holder FROM @schema@.sessions WHERE project = in_project AND session = in_session;
    IF NOT FOUND THEN
      outcome := 'absent';
      RETURN;
    END IF;
    IF holder IS NOT NULL THEN
      outcome := 'theirs';
      RETURN;
    END IF;
    -- It was given back in between.
  END LOOP;
END $$;
