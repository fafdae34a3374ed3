-- Version 4: look-up of sessions by the beginning of a name, the revision of a session, watching a whole project, turns
-- that end their run, originals, and the search index.

-- A name may be longer than an index can hold. Names are compared byte for byte.
CREATE INDEX sessions_by_prefix ON @schema@.sessions (project, (left(name, 100) COLLATE "C"));

-- Counts the changes that add no events. With the number of the last event it is the revision of the session, so that a turn
-- writes no more than before. What is cleared is added, so that the revision never falls.
ALTER TABLE @schema@.sessions ADD COLUMN changes bigint NOT NULL DEFAULT 0;

-- Until when somebody wants to hear of changes to any session of the project, unless they renew it.
ALTER TABLE @schema@.projects ADD COLUMN watched_until timestamptz;

-- The originals of turns: the output as the agent printed it, compressed. Rows of one original are written in one
-- transaction, its pieces first.
CREATE TABLE @schema@.originals (
  project   text NOT NULL,
  session   integer NOT NULL,
  run       text NOT NULL,
  -- The events of the turn; 0 if its place is not known.
  first_seq bigint NOT NULL,
  last_seq  bigint NOT NULL,
  bytes     bigint NOT NULL,
  stored_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- The role that stored it. Others do not let it expire.
  stored_by text NOT NULL DEFAULT session_user,
  PRIMARY KEY (project, session, run)
);
CREATE INDEX originals_by_time ON @schema@.originals (project, stored_by, stored_at);
-- Each of 1 MiB, except the last. Numbered from 0.
CREATE TABLE @schema@.original_pieces (
  project text NOT NULL,
  session integer NOT NULL,
  run     text NOT NULL,
  piece   integer NOT NULL,
  data    bytea NOT NULL,
  PRIMARY KEY (project, session, run, piece)
);
-- They are compressed.
ALTER TABLE @schema@.original_pieces ALTER COLUMN data SET STORAGE EXTERNAL;

-- The search index: a cache that clients fill, each version of the tokens for itself. How far each session is indexed; session 0 has
-- in through when all sessions were compared.
CREATE TABLE @schema@.search_sessions (
  project  text NOT NULL,
  session  integer NOT NULL,
  version  integer NOT NULL,
  stamp    bigint NOT NULL,
  through  bigint NOT NULL,
  last     bigint NOT NULL,
  changes  bigint NOT NULL,
  agent    text,
  active   bigint NOT NULL,
  worktree text NOT NULL,
  PRIMARY KEY (project, session, version)
);
-- The tokens of events, without their places, and labels for the project, the role, the tool and the agent.
CREATE TABLE @schema@.search_events (
  project text NOT NULL,
  session integer NOT NULL,
  version integer NOT NULL,
  seq     bigint NOT NULL,
  agent   text,
  -- The number of tokens.
  length  integer NOT NULL,
  words   tsvector NOT NULL,
  PRIMARY KEY (project, session, version, seq)
);
CREATE INDEX search_events_by_words ON @schema@.search_events USING gin (words);

-- The roles that may use the other tables may use these.
DO $$
DECLARE
  granted record;
BEGIN
  FOR granted IN
    SELECT privilege_type, CASE grantee WHEN 'PUBLIC' THEN grantee::text ELSE quote_ident(grantee) END AS role
    FROM information_schema.role_table_grants
    WHERE table_schema = '@schema@' AND table_name = 'sessions'
      AND privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
  LOOP
    EXECUTE format('GRANT %s ON @schema@.originals, @schema@.original_pieces, @schema@.search_sessions, @schema@.search_events TO %s',
      granted.privilege_type, granted.role);
  END LOOP;
END $$;

-- Stores an original whose pieces were inserted in this transaction. Outcomes: done, known (it is there already), absent. The
-- session is locked only now, so that nothing waits for the pieces.
CREATE FUNCTION @schema@.store_original(
  in_project text, in_session integer, in_run text, in_first bigint, in_last bigint, in_bytes bigint)
RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM @schema@.sessions WHERE project = in_project AND session = in_session FOR KEY SHARE;
  IF NOT FOUND THEN RETURN 'absent'; END IF;
  INSERT INTO @schema@.originals (project, session, run, first_seq, last_seq, bytes)
  VALUES (in_project, in_session, in_run, in_first, in_last, in_bytes) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN RETURN 'known'; END IF;
  -- As in note_done: the client deletes its copy.
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  RETURN 'done';
END $$;

-- Deletes the originals of a session. Returns their size; nothing if there is no such session.
CREATE FUNCTION @schema@.delete_originals(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  done bigint[];
  deleted bigint;
BEGIN
  PERFORM 1 FROM @schema@.sessions WHERE project = in_project AND session = in_session FOR UPDATE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  done := @schema@.answer_of(in_project, in_operation, in_repeated);
  IF done IS NOT NULL THEN RETURN done[1]; END IF;
  WITH gone AS (
    DELETE FROM @schema@.originals WHERE project = in_project AND session = in_session RETURNING bytes
  ) SELECT coalesce(sum(bytes), 0)::bigint INTO deleted FROM gone;
  DELETE FROM @schema@.original_pieces WHERE project = in_project AND session = in_session;
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[deleted]);
  RETURN deleted;
END $$;

-- Copies the originals of a session's events to its fork. Those that the fork has are left alone. Not part of fork_session, which
-- others wait for.
CREATE FUNCTION @schema@.fork_originals(in_project text, in_session integer, in_fork integer, in_at bigint)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  copied bigint;
BEGIN
  -- The session may have gone on since.
  SELECT LEAST(in_at, last_seq) INTO in_at FROM @schema@.sessions
  WHERE project = in_project AND session = in_fork FOR KEY SHARE;
  WITH made AS (
    INSERT INTO @schema@.originals (project, session, run, first_seq, last_seq, bytes, stored_at, stored_by)
    SELECT project, in_fork, run, first_seq, LEAST(last_seq, in_at), bytes, stored_at, stored_by
    FROM @schema@.originals
    WHERE project = in_project AND session = in_session AND first_seq BETWEEN 1 AND in_at
    ON CONFLICT DO NOTHING RETURNING run
  ), pieces AS (
    INSERT INTO @schema@.original_pieces (project, session, run, piece, data)
    SELECT project, in_fork, run, piece, data FROM made JOIN @schema@.original_pieces USING (run)
    WHERE project = in_project AND session = in_session
  ) SELECT count(*) INTO copied FROM made;
  RETURN copied;
END $$;

-- Tells whoever listens that a session has changed: those who watch it, and those who watch its project. No session has the
-- number 0, so that is the channel of the project.
CREATE FUNCTION @schema@.tell(in_project text, in_session integer, in_is_watched boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF in_is_watched THEN PERFORM @schema@.ring(in_project, in_session); END IF;
  IF EXISTS (SELECT 1 FROM @schema@.projects WHERE project = in_project AND watched_until > clock_timestamp()) THEN
    PERFORM @schema@.ring(in_project, 0);
  END IF;
END $$;

-- The functions below are as in the version before, but that they count changes and tell of them. Their arguments are the
-- same, or new ones have a default, so a client of version 3 that still runs may call them.

-- Makes a session. The caller has locked the project.
CREATE OR REPLACE FUNCTION @schema@.insert_session(
  in_project text, in_name text, in_worktree text, in_created_at text, in_uuid uuid, in_forked_from uuid,
  in_last_active text)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  number integer;
BEGIN
  UPDATE @schema@.projects SET last_session = last_session + 1 WHERE project = in_project
  RETURNING last_session INTO number;
  INSERT INTO @schema@.sessions (project, session, name, worktree, created_at, uuid, forked_from, last_active)
  VALUES (in_project, number, coalesce(in_name, 'S' || number), in_worktree, in_created_at, in_uuid, in_forked_from,
    in_last_active);
  PERFORM @schema@.tell(in_project, number, false);
  RETURN number;
END $$;

-- With in_ends_run it removes the session's note of a run. A new argument needs a new function: beside the old one, a call
-- without it would fit both.
DROP FUNCTION @schema@.append_turn;
CREATE FUNCTION @schema@.append_turn(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer, in_after bigint, in_lease text,
  in_kinds text[], in_events text[], in_added bigint[], in_opens smallint[], in_previews text[],
  in_agent text, in_first_agent text, in_keeps_model boolean, in_model text, in_other_model text, in_requested_model text,
  in_last_prompt text, in_answered boolean, in_last_active text, in_told bigint, in_context_tokens bigint,
  in_completed boolean, in_duration_ms bigint, in_cost_usd double precision,
  in_tokens_in bigint, in_tokens_out bigint, in_cache_read bigint, in_cache_write bigint, in_used_in text, in_mark text, in_note text,
  in_ends_run boolean DEFAULT false,
  OUT outcome text, OUT starts_at bigint, OUT ends_at bigint)
LANGUAGE plpgsql AS $$
DECLARE
  done bigint[];
  events_added bigint := cardinality(in_events);
  has_events boolean := events_added > 0;
  is_watched boolean;
  is_project_watched boolean;
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
      changes = CASE WHEN has_events THEN changes ELSE changes + 1 END,
      noted_run = CASE WHEN in_ends_run THEN NULL ELSE noted_run END,
      messages = messages + in_added[2 * open_message - (preview IS NULL)::integer],
      open_message = in_opens[2 * open_message - (preview IS NULL)::integer],
      preview = coalesce(preview, in_previews[2 * open_message - 1]),
      agent = coalesce(in_agent, agent),
      model = CASE WHEN in_first_agent IS NOT NULL AND agent IS DISTINCT FROM in_first_agent THEN in_other_model
                   WHEN in_keeps_model THEN model ELSE in_model END,
      requested_model = CASE WHEN in_agent IS NULL THEN requested_model ELSE in_requested_model END,
      last_prompt = coalesce(in_last_prompt, last_prompt),
      answered = answered OR in_answered,
      last_active = CASE WHEN has_events THEN in_last_active ELSE last_active END,
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
      tokens_out = @schema@.plus(tokens_out, in_tokens_out),
      cache_read = @schema@.plus(cache_read, in_cache_read),
      cache_write = @schema@.plus(cache_write, in_cache_write)
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
  SELECT first_added, last_seq, has_events AND changed.watched_until > clock_timestamp(),
    projects.watched_until > clock_timestamp()
  INTO starts_at, ends_at, is_watched, is_project_watched
  FROM changed LEFT JOIN @schema@.projects ON projects.project = in_project;
  IF NOT FOUND THEN
    SELECT last_seq, CASE WHEN lease IS DISTINCT FROM coalesce(in_lease, lease) THEN 'fenced' ELSE 'moved' END
    INTO ends_at, outcome FROM @schema@.sessions
    WHERE project = in_project AND session = in_session;
    IF NOT FOUND THEN outcome := 'absent'; END IF;
    RETURN;
  END IF;
  IF in_used_in IS NOT NULL THEN
    -- Most turns continue the session of the turn before: that writes nothing.
    INSERT INTO @schema@.last_used AS known (project, used_in, session) VALUES (in_project, in_used_in, in_session)
    ON CONFLICT (project, md5(used_in)) DO UPDATE SET session = EXCLUDED.session WHERE known.session <> EXCLUDED.session;
  END IF;
  IF in_mark IS NOT NULL THEN
    INSERT INTO @schema@.marks (project, name, session, note)
    VALUES (in_project, in_mark, in_session, in_note)
    ON CONFLICT (project, md5(name)) DO UPDATE SET session = EXCLUDED.session, note = EXCLUDED.note;
  END IF;
  IF is_watched OR is_project_watched THEN PERFORM @schema@.tell(in_project, in_session, is_watched); END IF;
  IF random() < 0.005 THEN PERFORM @schema@.forget_operations(in_project); END IF;
  -- As in note_done.
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  outcome := 'done';
END $$;

-- Says whether there is such a session.
CREATE OR REPLACE FUNCTION @schema@.add_tokens(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer, in_tokens_in bigint, in_tokens_out bigint,
  in_cache_read bigint, in_cache_write bigint)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM @schema@.sessions WHERE project = in_project AND session = in_session FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  IF @schema@.answer_of(in_project, in_operation, in_repeated) IS NOT NULL THEN RETURN true; END IF;
  UPDATE @schema@.sessions SET
    tokens_in = @schema@.plus(tokens_in, in_tokens_in), tokens_out = @schema@.plus(tokens_out, in_tokens_out),
    cache_read = @schema@.plus(cache_read, in_cache_read), cache_write = @schema@.plus(cache_write, in_cache_write),
    changes = changes + 1
  WHERE project = in_project AND session = in_session;
  PERFORM @schema@.tell(in_project, in_session, false);
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[]::bigint[]);
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION @schema@.delete_session(
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
  PERFORM @schema@.tell(in_project, in_session, is_watched);
  DELETE FROM @schema@.events WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.compactions WHERE project = in_project AND session = in_session;
  -- A mark of an import tells the next one that the session was deleted.
  UPDATE @schema@.marks SET note = '' WHERE project = in_project AND session = in_session AND name LIKE 'native:%';
  DELETE FROM @schema@.marks WHERE project = in_project AND session = in_session AND name NOT LIKE 'native:%';
  DELETE FROM @schema@.last_used WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.originals WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.original_pieces WHERE project = in_project AND session = in_session;
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[]::bigint[]);
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION @schema@.clear_session(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  is_watched boolean;
BEGIN
  PERFORM 1 FROM @schema@.sessions WHERE project = in_project AND session = in_session FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  IF @schema@.answer_of(in_project, in_operation, in_repeated) IS NOT NULL THEN RETURN true; END IF;
  UPDATE @schema@.sessions SET changes = changes + last_seq + 1, last_seq = 0, messages = 0, open_message = 1, preview = NULL,
    agent = NULL, model = NULL, told = 0, context_tokens = NULL, completed = NULL,
    last_prompt = NULL, answered = false, requested_model = NULL, generation = generation + 1
  WHERE project = in_project AND session = in_session
  RETURNING watched_until > clock_timestamp() INTO is_watched;
  PERFORM @schema@.tell(in_project, in_session, is_watched);
  DELETE FROM @schema@.events WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.compactions WHERE project = in_project AND session = in_session;
  -- The numbers of its events will be those of others.
  DELETE FROM @schema@.originals WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.original_pieces WHERE project = in_project AND session = in_session;
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[]::bigint[]);
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION @schema@.add_compaction(
  in_project text, in_session integer, in_after_seq bigint, in_summary text, in_created_at text, in_covers bigint,
  in_writer text, in_opening_chars bigint, in_opening bigint,
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
    INSERT INTO @schema@.compactions (project, session, after_seq, summary, created_at, covers, writer, opening_chars, opening)
    VALUES (in_project, in_session, in_after_seq, in_summary, in_created_at, in_covers, in_writer, in_opening_chars, in_opening)
    ON CONFLICT (project, session, after_seq) DO UPDATE
    SET summary = EXCLUDED.summary, created_at = EXCLUDED.created_at, covers = EXCLUDED.covers,
      writer = EXCLUDED.writer, opening_chars = EXCLUDED.opening_chars, opening = EXCLUDED.opening;
    -- The model will have something else before it.
    UPDATE @schema@.sessions SET context_tokens = NULL, changes = changes + 1
    WHERE project = in_project AND session = in_session;
    PERFORM @schema@.tell(in_project, in_session, false);
    outcome := 'done';
  END IF;
END $$;

CREATE OR REPLACE FUNCTION @schema@.remove_compaction(
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
  UPDATE @schema@.sessions SET context_tokens = NULL, changes = changes + 1
  WHERE project = in_project AND session = in_session;
  PERFORM @schema@.tell(in_project, in_session, false);
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[]::bigint[]);
  RETURN 'done';
END $$;

-- Adds events to the search index. Returns whether the session had the expected stamp and last event, or none was expected: then
-- what is indexed of the session is replaced.
CREATE FUNCTION @schema@.search_put(
  in_project text, in_session integer, in_version integer, in_expected_stamp bigint, in_expected_through bigint,
  in_stamp bigint, in_through bigint, in_last bigint, in_changes bigint, in_agent text, in_active bigint, in_worktree text,
  in_seqs bigint[], in_agents text[], in_lengths integer[], in_words text[])
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  IF in_expected_stamp IS NULL THEN
    INSERT INTO @schema@.search_sessions AS known (project, session, version, stamp, through, last, changes, agent, active, worktree)
    VALUES (in_project, in_session, in_version, in_stamp, in_through, in_last, in_changes, in_agent, in_active, in_worktree)
    ON CONFLICT (project, session, version) DO UPDATE
    SET stamp = EXCLUDED.stamp, through = EXCLUDED.through, last = EXCLUDED.last, changes = EXCLUDED.changes,
      agent = EXCLUDED.agent, active = EXCLUDED.active, worktree = EXCLUDED.worktree;
    DELETE FROM @schema@.search_events WHERE project = in_project AND session = in_session AND version = in_version;
  ELSE
    UPDATE @schema@.search_sessions
    SET stamp = in_stamp, through = in_through, last = in_last, changes = in_changes, agent = in_agent, active = in_active,
      worktree = in_worktree
    WHERE project = in_project AND session = in_session AND version = in_version
      AND stamp = in_expected_stamp AND through = in_expected_through;
    IF NOT FOUND THEN RETURN false; END IF;
  END IF;
  INSERT INTO @schema@.search_events (project, session, version, seq, agent, length, words)
  SELECT in_project, in_session, in_version, seq, agent, length, array_to_tsvector(string_to_array(words, ' '))
  FROM unnest(in_seqs, in_agents, in_lengths, in_words) AS given (seq, agent, length, words);
  RETURN true;
END $$;
