-- Version 6: what exactly-once and exchanges between stores need. An id of the store, operations that never expire, tombstones, times
-- of names, the agent's own entry and the time of removal of an event.

-- The id of these tables. That of a project is derived from it.
ALTER TABLE @schema@.format ADD COLUMN store uuid NOT NULL DEFAULT gen_random_uuid();

ALTER TABLE @schema@.sessions
  -- When it got its name; empty without one, and for names of version 5.
  ADD COLUMN named_at text NOT NULL DEFAULT '',
  -- The operation that created it.
  ADD COLUMN created_by uuid;

ALTER TABLE @schema@.events
  -- The id of the entry in the agent's own session.
  ADD COLUMN entry text,
  -- When its content was removed.
  ADD COLUMN removed_at text;

-- What was done in a session, with the answer. A repeat is told what it was, at any later time. Rows go with their session, and so
-- does not depend on a clock whether a turn is stored once. Clients of version 5 are refused from now on, so their rows are of no use.
TRUNCATE @schema@.operations;
ALTER TABLE @schema@.operations
  DROP CONSTRAINT operations_pkey,
  ADD COLUMN session integer NOT NULL,
  -- The generation of the session: after a clear, nobody knows whether the turn was in it.
  ADD COLUMN generation bigint NOT NULL,
  ADD CONSTRAINT operations_pkey PRIMARY KEY (project, session, operation);

-- What is left of a deleted session.
CREATE TABLE @schema@.tombstones (
  project    text NOT NULL,
  uuid       uuid NOT NULL,
  session    integer NOT NULL,
  deleted_at text NOT NULL,
  events     bigint NOT NULL,
  -- When a session of this UUID was created again.
  revived_at text,
  -- The operations that created and deleted it, for repeats.
  created_by uuid,
  deleted_by uuid NOT NULL,
  PRIMARY KEY (project, uuid)
);
CREATE INDEX tombstones_by_session ON @schema@.tombstones (project, session);

-- The roles that may use the other tables may use this one.
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
    EXECUTE format('GRANT %s ON @schema@.tombstones TO %s', granted.privilege_type, granted.role);
  END LOOP;
END $$;

DROP FUNCTION @schema@.create_with;
DROP FUNCTION @schema@.fork_session;
DROP FUNCTION @schema@.create_session;
DROP FUNCTION @schema@.find_or_create;
DROP FUNCTION @schema@.append_turn;
DROP FUNCTION @schema@.insert_session;
DROP FUNCTION @schema@.forget_operations;
DROP FUNCTION @schema@.answer_of;
DROP FUNCTION @schema@.note_done;

CREATE FUNCTION @schema@.now_text() RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
  RETURN to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');
END $$;

-- Returns the present, or a second after another time if that is not earlier: no clock decides alone.
CREATE FUNCTION @schema@.later_than(in_time text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  present text := @schema@.now_text();
BEGIN
  IF in_time IS NULL OR present > in_time COLLATE "C" THEN RETURN present; END IF;
  RETURN to_char((in_time::timestamptz + interval '1 s') AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');
EXCEPTION WHEN data_exception THEN
  RETURN present;
END $$;

-- What is acknowledged is on the disk, also where the server was told that this is not needed.
CREATE FUNCTION @schema@.make_durable() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- The answer of an operation that is asked for again; nothing if it was not done yet. An earlier try may still
-- be at work when this is asked. Then noting the operation a second time fails, and the client comes once more.
CREATE FUNCTION @schema@.answer_of(in_project text, in_session integer, in_operation uuid, in_repeated boolean)
RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
  IF NOT in_repeated THEN RETURN NULL; END IF;
  RETURN (SELECT answer FROM @schema@.operations
          WHERE project = in_project AND session = in_session AND operation = in_operation);
END $$;

-- Remembers that an operation is done. Part of its transaction.
CREATE FUNCTION @schema@.note_done(in_project text, in_session integer, in_operation uuid, in_answer bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO @schema@.operations (project, session, operation, generation, answer)
  SELECT in_project, in_session, in_operation, generation, in_answer FROM @schema@.sessions
  WHERE project = in_project AND session = in_session;
  PERFORM @schema@.make_durable();
END $$;

-- The session that an operation has created, also if it is deleted; nothing if there is none. The caller has locked the project.
CREATE FUNCTION @schema@.created_by(in_project text, in_uuid uuid, in_operation uuid) RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
  RETURN coalesce(
    (SELECT session FROM @schema@.sessions
     WHERE project = in_project AND uuid = in_uuid AND created_by = in_operation),
    (SELECT session FROM @schema@.tombstones
     WHERE project = in_project AND uuid = in_uuid AND created_by = in_operation));
END $$;

-- Makes a session. The caller has locked the project.
CREATE FUNCTION @schema@.insert_session(
  in_project text, in_operation uuid, in_name text, in_named_at text, in_worktree text, in_created_at text, in_uuid uuid,
  in_forked_from uuid, in_last_active text)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  number integer;
BEGIN
  UPDATE @schema@.projects SET last_session = last_session + 1 WHERE project = in_project
  RETURNING last_session INTO number;
  INSERT INTO @schema@.sessions
    (project, session, name, named_at, worktree, created_at, uuid, forked_from, last_active, created_by)
  VALUES (in_project, number, coalesce(in_name, 'S' || number),
    CASE WHEN in_name IS NULL THEN '' ELSE coalesce(in_named_at, @schema@.now_text()) END,
    in_worktree, in_created_at, in_uuid, in_forked_from, in_last_active, in_operation);
  UPDATE @schema@.tombstones SET revived_at = @schema@.later_than(coalesce(revived_at, deleted_at))
  WHERE project = in_project AND uuid = in_uuid;
  PERFORM @schema@.tell(in_project, number, false);
  RETURN number;
END $$;

CREATE FUNCTION @schema@.create_session(
  in_project text, in_operation uuid, in_repeated boolean, in_name text, in_named_at text, in_worktree text,
  in_created_at text, in_uuid uuid, in_forked_from uuid, in_last_active text)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  number integer;
BEGIN
  PERFORM @schema@.lock_project(in_project);
  number := @schema@.created_by(in_project, in_uuid, in_operation);
  IF number IS NOT NULL THEN RETURN number; END IF;
  PERFORM @schema@.make_durable();
  RETURN @schema@.insert_session(in_project, in_operation, in_name, in_named_at, in_worktree, in_created_at, in_uuid,
    in_forked_from, in_last_active);
END $$;

-- To ask again finds what was made, so this needs no operation.
CREATE FUNCTION @schema@.find_or_create(
  in_project text, in_name text, in_named_at text, in_worktree text, in_created_at text, in_uuid uuid, in_forked_from uuid,
  in_last_active text)
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
  PERFORM @schema@.make_durable();
  RETURN @schema@.insert_session(in_project, NULL, in_name, in_named_at, in_worktree, in_created_at, in_uuid, in_forked_from,
    in_last_active);
END $$;

-- What is known of an append that may have been sent before. Outcomes: absent (no such session), cleared (the session was cleared
-- since), done, and nothing if it was not appended.
CREATE FUNCTION @schema@.sent_before(
  in_project text, in_session integer, in_operation uuid, in_generation bigint,
  OUT outcome text, OUT starts_at bigint, OUT ends_at bigint)
LANGUAGE plpgsql AS $$
DECLARE
  present_generation bigint;
  done_generation bigint;
BEGIN
  SELECT sessions.generation, operations.generation, operations.answer[1], operations.answer[2]
  INTO present_generation, done_generation, starts_at, ends_at
  FROM @schema@.sessions LEFT JOIN @schema@.operations
    ON operations.project = in_project AND operations.session = in_session AND operations.operation = in_operation
  WHERE sessions.project = in_project AND sessions.session = in_session;
  IF NOT FOUND THEN
    outcome := 'absent';
  ELSIF coalesce(in_generation, present_generation) <> present_generation
    OR coalesce(done_generation, present_generation) <> present_generation THEN
    outcome := 'cleared';
  ELSIF done_generation IS NOT NULL THEN
    outcome := 'done';
  END IF;
END $$;

-- Adds a turn to a session, once for each in_operation. Outcomes: done, absent (no such session), cleared (it was cleared since
-- in_generation, or since an earlier try), fenced (another lease was given out since in_lease), moved (it does not end at in_after,
-- but at ends_at). With in_ends_run it removes the session's note of a run. Version 2 explains the counts.
CREATE FUNCTION @schema@.append_turn(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer, in_after bigint, in_lease text,
  in_generation bigint, in_kinds text[], in_events text[], in_entries text[], in_removed text[], in_added bigint[], in_opens smallint[], in_previews text[],
  in_agent text, in_first_agent text, in_keeps_model boolean, in_model text, in_other_model text, in_requested_model text,
  in_last_prompt text, in_answered boolean, in_last_active text, in_told bigint, in_context_tokens bigint,
  in_completed boolean, in_duration_ms bigint, in_cost_usd double precision,
  in_tokens_in bigint, in_tokens_out bigint, in_cache_read bigint, in_cache_write bigint, in_used_in text, in_mark text, in_note text,
  in_ends_run boolean,
  OUT outcome text, OUT starts_at bigint, OUT ends_at bigint)
LANGUAGE plpgsql AS $$
DECLARE
  events_added bigint := cardinality(in_events);
  has_events boolean := events_added > 0;
  is_watched boolean;
  is_project_watched boolean;
BEGIN
  -- A first try needs to look only if its caller may have sent it before.
  IF in_repeated OR in_generation IS NOT NULL THEN
    SELECT * INTO outcome, starts_at, ends_at FROM @schema@.sent_before(in_project, in_session, in_operation, in_generation);
    IF outcome IS NOT NULL THEN RETURN; END IF;
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
      AND (in_lease IS NULL OR lease = in_lease) AND (in_generation IS NULL OR generation = in_generation)
    RETURNING last_seq - events_added + 1 AS first_added, last_seq, watched_until, answered, generation
  ), added AS (
    INSERT INTO @schema@.events (project, session, seq, kind, json, entry, removed_at, data)
    SELECT in_project, in_session, first_added - 1 + number, kind, json, entry, removed_at,
      CASE WHEN in_repeated THEN @schema@.as_jsonb(json) ELSE json::jsonb END
    FROM changed, unnest(in_kinds, in_events, in_entries, in_removed) WITH ORDINALITY
      AS new (kind, json, entry, removed_at, number)
  ), noted AS (
    INSERT INTO @schema@.operations (project, session, operation, generation, answer)
    SELECT in_project, in_session, in_operation, generation, ARRAY[first_added, last_seq] FROM changed
  )
  SELECT first_added, last_seq, has_events AND changed.watched_until > clock_timestamp(),
    projects.watched_until > clock_timestamp()
  INTO starts_at, ends_at, is_watched, is_project_watched
  FROM changed LEFT JOIN @schema@.projects ON projects.project = in_project;
  IF NOT FOUND THEN
    -- Perhaps because an earlier try was at work, and is done now.
    SELECT * INTO outcome, starts_at, ends_at FROM @schema@.sent_before(in_project, in_session, in_operation, in_generation);
    IF outcome IS NULL THEN
      SELECT last_seq, CASE WHEN lease IS DISTINCT FROM coalesce(in_lease, lease) THEN 'fenced' ELSE 'moved' END
      INTO ends_at, outcome FROM @schema@.sessions
      WHERE project = in_project AND session = in_session;
    END IF;
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
  -- As in note_done.
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  outcome := 'done';
END $$;

CREATE FUNCTION @schema@.create_with(
  in_project text, in_operation uuid, in_repeated boolean, in_name text, in_worktree text, in_created_at text,
  in_named_at text, in_uuid uuid, in_forked_from uuid, in_session_active text,
  in_kinds text[], in_events text[], in_entries text[], in_removed text[], in_added bigint[], in_opens smallint[], in_previews text[],
  in_agent text, in_first_agent text, in_keeps_model boolean, in_model text, in_other_model text, in_requested_model text,
  in_last_prompt text, in_answered boolean, in_last_active text, in_told bigint, in_context_tokens bigint,
  in_completed boolean, in_duration_ms bigint, in_cost_usd double precision,
  in_tokens_in bigint, in_tokens_out bigint, in_cache_read bigint, in_cache_write bigint, in_used_in text, in_mark text, in_note text,
  in_after_seqs bigint[], in_summaries text[], in_compacted_at text[], in_covers bigint[],
  in_writers text[], in_opening_chars bigint[], in_openings bigint[],
  OUT outcome text, OUT number integer, OUT note text)
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM @schema@.lock_project(in_project);
  number := @schema@.created_by(in_project, in_uuid, in_operation);
  IF number IS NOT NULL THEN
    outcome := 'done';
    RETURN;
  END IF;
  SELECT 'marked', marks.session, marks.note INTO outcome, number, note FROM @schema@.marks
  WHERE marks.project = in_project AND md5(marks.name) = md5(in_mark) AND marks.name = in_mark;
  IF FOUND THEN RETURN; END IF;
  outcome := 'done';
  number := @schema@.insert_session(in_project, in_operation, in_name, in_named_at, in_worktree, in_created_at, in_uuid,
    in_forked_from, in_session_active);
  PERFORM @schema@.append_turn(in_project, in_operation, in_repeated, number, NULL, NULL, NULL, in_kinds, in_events,
    in_entries, in_removed, in_added, in_opens, in_previews, in_agent, in_first_agent, in_keeps_model, in_model, in_other_model, in_requested_model,
    in_last_prompt, in_answered, in_last_active, in_told,
    -- With a summary the model will have something else before it.
    CASE WHEN cardinality(in_after_seqs) = 0 THEN in_context_tokens END,
    in_completed, in_duration_ms, in_cost_usd, in_tokens_in, in_tokens_out, in_cache_read, in_cache_write, in_used_in,
    in_mark, in_note, false);
  INSERT INTO @schema@.compactions (project, session, after_seq, summary, created_at, covers, writer, opening_chars, opening)
  SELECT in_project, number, after_seq, summary, created_at, covers, writer, opening_chars, opening
  FROM unnest(in_after_seqs, in_summaries, in_compacted_at, in_covers, in_writers, in_opening_chars, in_openings)
    AS new (after_seq, summary, created_at, covers, writer, opening_chars, opening)
  ON CONFLICT (project, session, after_seq) DO UPDATE
  SET summary = EXCLUDED.summary, created_at = EXCLUDED.created_at, writer = EXCLUDED.writer,
    opening_chars = EXCLUDED.opening_chars, opening = EXCLUDED.opening;
END $$;

CREATE FUNCTION @schema@.fork_session(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer, in_at bigint, in_generation bigint,
  in_messages bigint, in_open smallint, in_preview text, in_agent text, in_model text, in_told bigint,
  in_last_prompt text, in_answered boolean, in_requested_model text,
  in_name text, in_named_at text, in_worktree text, in_created_at text, in_uuid uuid, in_last_active text,
  OUT outcome text, OUT number integer, OUT last_seq bigint)
LANGUAGE plpgsql AS $$
DECLARE
  origin @schema@.sessions;
BEGIN
  SELECT * INTO origin FROM @schema@.sessions
  WHERE project = in_project AND session = in_session FOR SHARE;
  PERFORM @schema@.lock_project(in_project);
  number := @schema@.created_by(in_project, in_uuid, in_operation);
  IF number IS NOT NULL THEN
    outcome := 'done';
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
    in_last_prompt := origin.last_prompt; in_answered := origin.answered; in_requested_model := origin.requested_model;
  ELSIF in_at > origin.last_seq THEN
    outcome := 'no_event';
    RETURN;
  ELSIF in_generation <> origin.generation THEN
    outcome := 'changed';
    RETURN;
  END IF;
  outcome := 'done';
  number := @schema@.insert_session(in_project, in_operation, in_name, in_named_at, in_worktree, in_created_at, in_uuid,
    origin.uuid, in_last_active);
  INSERT INTO @schema@.events (project, session, seq, kind, json, entry, removed_at, data)
  SELECT in_project, number, seq, kind, json, entry, removed_at, data FROM @schema@.events
  WHERE project = in_project AND session = in_session AND seq <= in_at;
  INSERT INTO @schema@.compactions (project, session, after_seq, summary, created_at, covers, writer, opening_chars, opening)
  SELECT in_project, number, after_seq, summary, created_at, covers, writer, opening_chars, opening
  FROM @schema@.compactions
  WHERE project = in_project AND session = in_session AND after_seq <= in_at;
  UPDATE @schema@.sessions SET last_seq = in_at, messages = in_messages, open_message = in_open,
    preview = in_preview, agent = in_agent, model = in_model, told = in_told,
    last_prompt = in_last_prompt, answered = in_answered, requested_model = in_requested_model
  WHERE project = in_project AND session = number;
  PERFORM @schema@.make_durable();
END $$;

CREATE FUNCTION @schema@.rename_session(in_project text, in_session integer, in_name text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE @schema@.sessions SET name = in_name, named_at = @schema@.later_than(named_at), changes = changes + 1
  WHERE project = in_project AND session = in_session;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM @schema@.tell(in_project, in_session, false);
  PERFORM @schema@.make_durable();
  RETURN true;
END $$;

-- Says whether there was such a session.
CREATE OR REPLACE FUNCTION @schema@.delete_session(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  gone @schema@.sessions;
  is_shared boolean;
BEGIN
  DELETE FROM @schema@.sessions WHERE project = in_project AND session = in_session RETURNING * INTO gone;
  IF NOT FOUND THEN
    RETURN EXISTS (SELECT 1 FROM @schema@.tombstones
                   WHERE project = in_project AND session = in_session AND deleted_by = in_operation)
      OR @schema@.answer_of(in_project, in_session, in_operation, in_repeated) IS NOT NULL;
  END IF;
  -- Of sessions with one UUID that are deleted at once, one is the last.
  PERFORM @schema@.lock_project(in_project);
  is_shared := EXISTS (SELECT 1 FROM @schema@.sessions WHERE project = in_project AND uuid = gone.uuid);
  IF NOT is_shared THEN
    INSERT INTO @schema@.tombstones AS known (project, uuid, session, deleted_at, events, created_by, deleted_by)
    VALUES (in_project, gone.uuid, in_session, @schema@.now_text(), gone.last_seq, gone.created_by, in_operation)
    ON CONFLICT (project, uuid) DO UPDATE
    SET session = EXCLUDED.session, events = EXCLUDED.events, created_by = EXCLUDED.created_by, deleted_by = EXCLUDED.deleted_by,
      deleted_at = @schema@.later_than(coalesce(known.revived_at, known.deleted_at)), revived_at = NULL;
  END IF;
  PERFORM @schema@.tell(in_project, in_session, gone.watched_until > clock_timestamp());
  DELETE FROM @schema@.events WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.compactions WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.operations WHERE project = in_project AND session = in_session;
  IF is_shared THEN
    -- There is no tombstone that tells a repeat of this.
    INSERT INTO @schema@.operations (project, session, operation, generation, answer)
    VALUES (in_project, in_session, in_operation, gone.generation, ARRAY[]::bigint[]);
  END IF;
  -- A mark of an import tells the next one that the session was deleted.
  UPDATE @schema@.marks SET note = '' WHERE project = in_project AND session = in_session AND name LIKE 'native:%';
  DELETE FROM @schema@.marks WHERE project = in_project AND session = in_session AND name NOT LIKE 'native:%';
  DELETE FROM @schema@.last_used WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.originals WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.original_pieces WHERE project = in_project AND session = in_session;
  PERFORM @schema@.make_durable();
  RETURN true;
END $$;

-- The functions below are as in the version before, but that operations belong to a session.

CREATE OR REPLACE FUNCTION @schema@.clear_session(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  is_watched boolean;
BEGIN
  PERFORM 1 FROM @schema@.sessions WHERE project = in_project AND session = in_session FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  IF @schema@.answer_of(in_project, in_session, in_operation, in_repeated) IS NOT NULL THEN RETURN true; END IF;
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
  PERFORM @schema@.note_done(in_project, in_session, in_operation, ARRAY[]::bigint[]);
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION @schema@.add_tokens(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer, in_tokens_in bigint, in_tokens_out bigint,
  in_cache_read bigint, in_cache_write bigint)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM @schema@.sessions WHERE project = in_project AND session = in_session FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  IF @schema@.answer_of(in_project, in_session, in_operation, in_repeated) IS NOT NULL THEN RETURN true; END IF;
  UPDATE @schema@.sessions SET
    tokens_in = @schema@.plus(tokens_in, in_tokens_in), tokens_out = @schema@.plus(tokens_out, in_tokens_out),
    cache_read = @schema@.plus(cache_read, in_cache_read), cache_write = @schema@.plus(cache_write, in_cache_write),
    changes = changes + 1
  WHERE project = in_project AND session = in_session;
  PERFORM @schema@.tell(in_project, in_session, false);
  PERFORM @schema@.note_done(in_project, in_session, in_operation, ARRAY[]::bigint[]);
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION @schema@.remove_compaction(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer, in_after_seq bigint)
RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM @schema@.sessions WHERE project = in_project AND session = in_session FOR UPDATE;
  IF NOT FOUND THEN RETURN 'absent'; END IF;
  IF @schema@.answer_of(in_project, in_session, in_operation, in_repeated) IS NOT NULL THEN RETURN 'done'; END IF;
  DELETE FROM @schema@.compactions
  WHERE project = in_project AND session = in_session AND after_seq = in_after_seq;
  IF NOT FOUND THEN RETURN 'none'; END IF;
  UPDATE @schema@.sessions SET context_tokens = NULL, changes = changes + 1
  WHERE project = in_project AND session = in_session;
  PERFORM @schema@.tell(in_project, in_session, false);
  PERFORM @schema@.note_done(in_project, in_session, in_operation, ARRAY[]::bigint[]);
  RETURN 'done';
END $$;

CREATE OR REPLACE FUNCTION @schema@.delete_originals(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  done bigint[];
  deleted bigint;
BEGIN
  PERFORM 1 FROM @schema@.sessions WHERE project = in_project AND session = in_session FOR UPDATE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  done := @schema@.answer_of(in_project, in_session, in_operation, in_repeated);
  IF done IS NOT NULL THEN RETURN done[1]; END IF;
  WITH gone AS (
    DELETE FROM @schema@.originals WHERE project = in_project AND session = in_session RETURNING bytes
  ) SELECT coalesce(sum(bytes), 0)::bigint INTO deleted FROM gone;
  DELETE FROM @schema@.original_pieces WHERE project = in_project AND session = in_session;
  PERFORM @schema@.note_done(in_project, in_session, in_operation, ARRAY[deleted]);
  RETURN deleted;
END $$;

-- Says whether there was such a mark.
CREATE OR REPLACE FUNCTION @schema@.remove_mark(
  in_project text, in_operation uuid, in_repeated boolean, in_name text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  marked integer;
BEGIN
  DELETE FROM @schema@.marks WHERE project = in_project AND md5(name) = md5(in_name) AND name = in_name
  RETURNING session INTO marked;
  IF FOUND THEN
    PERFORM @schema@.note_done(in_project, marked, in_operation, ARRAY[]::bigint[]);
    RETURN true;
  END IF;
  -- A mark that is gone does not name its session. Only a repeat looks through those of the project.
  RETURN in_repeated AND EXISTS (SELECT 1 FROM @schema@.operations
                                 WHERE project = in_project AND operation = in_operation);
END $$;

-- A role that may create functions in a schema of the path must not have its own run in the name of others.
DO $$
DECLARE
  called regprocedure;
BEGIN
  FOR called IN
    SELECT pg_proc.oid FROM pg_proc JOIN pg_language ON pg_language.oid = prolang
    WHERE pronamespace = '@schema@'::regnamespace AND lanname = 'plpgsql'
  LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', called);
  END LOOP;
END $$;
