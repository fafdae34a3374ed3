-- Version 2: the identity of sessions, and what continuing one needs.
--
-- Rows of version 1 get an identity here. What is counted over their events since this version is counted by the client
-- that upgrades, in the same transaction (recount.rs).

ALTER TABLE @schema@.sessions
  -- The identity of the session, in every store that it is copied to.
  ADD COLUMN uuid uuid NOT NULL DEFAULT gen_random_uuid(),
  ADD COLUMN forked_from uuid,
  -- Time of the last activity; empty where version 1 did not keep it.
  ADD COLUMN last_active text NOT NULL DEFAULT '',
  -- Counted over the events: the last prompt, whether an agent has ever answered, the model that was asked for last.
  ADD COLUMN last_prompt text,
  ADD COLUMN answered boolean NOT NULL DEFAULT false,
  ADD COLUMN requested_model text;
CREATE INDEX sessions_by_uuid ON @schema@.sessions (project, uuid);

ALTER TABLE @schema@.compactions
  -- The author of the summary; NULL if unknown.
  ADD COLUMN writer text,
  -- The measured size of the context's opening under this summary, in characters; NULL if nobody measured it.
  ADD COLUMN opening_chars bigint,
  -- The same, or the length of the summary.
  ADD COLUMN opening bigint NOT NULL DEFAULT 0;
-- Without its escapes (text.rs): each stands for one character.
UPDATE @schema@.compactions SET opening = length(regexp_replace(summary, E'\x1A.', '_', 'g'));

UPDATE @schema@.sessions SET answered = true WHERE EXISTS (
  SELECT 1 FROM @schema@.events
  WHERE events.project = sessions.project AND events.session = sessions.session
    AND kind IN ('AssistantText', 'ToolCall', 'Plan'));

-- The session of the last turn that was taken somewhere: a worktree, and a user.
CREATE TABLE @schema@.last_used (
  project text NOT NULL,
  used_in text NOT NULL,
  session integer NOT NULL
);
CREATE UNIQUE INDEX last_used_by_place ON @schema@.last_used (project, md5(used_in));
CREATE INDEX last_used_by_session ON @schema@.last_used (project, session);

-- Names of projects whose sessions are kept under another one: the first release left the host out of a name. A project has
-- at most one name of this kind. A row that names itself says that there is no other.
CREATE TABLE @schema@.project_names (
  name    text PRIMARY KEY,
  project text NOT NULL UNIQUE
);

-- Whoever may use the other tables may use these.
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
    EXECUTE format('GRANT %s ON @schema@.last_used, @schema@.project_names TO %s', granted.privilege_type, granted.role);
  END LOOP;
END $$;

-- A client of version 1 that still runs must not write sessions without what is new: its calls fail, and what it has to
-- store is recovered by its next start.
DROP FUNCTION @schema@.create_with;
DROP FUNCTION @schema@.fork_session;
DROP FUNCTION @schema@.create_session;
DROP FUNCTION @schema@.find_or_create;
DROP FUNCTION @schema@.append_turn;
DROP FUNCTION @schema@.insert_session;
DROP FUNCTION @schema@.add_compaction;

-- Makes a session. The caller has locked the project.
CREATE FUNCTION @schema@.insert_session(
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
  RETURN number;
END $$;

CREATE FUNCTION @schema@.create_session(
  in_project text, in_operation uuid, in_repeated boolean, in_name text, in_worktree text, in_created_at text,
  in_uuid uuid, in_forked_from uuid, in_last_active text)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  done bigint[];
  number integer;
BEGIN
  PERFORM @schema@.lock_project(in_project);
  done := @schema@.answer_of(in_project, in_operation, in_repeated);
  IF done IS NOT NULL THEN RETURN done[1]; END IF;
  number := @schema@.insert_session(in_project, in_name, in_worktree, in_created_at, in_uuid, in_forked_from, in_last_active);
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[number]);
  RETURN number;
END $$;

-- To ask again finds what was made, so this needs no operation.
CREATE FUNCTION @schema@.find_or_create(
  in_project text, in_name text, in_worktree text, in_created_at text, in_uuid uuid, in_forked_from uuid,
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
  RETURN @schema@.insert_session(in_project, in_name, in_worktree, in_created_at, in_uuid, in_forked_from, in_last_active);
END $$;

-- Adds a turn to a session. Outcomes: done, absent (no such session), fenced (another lease was given out since
-- in_lease), moved (it does not end at in_after, but at ends_at).
--
-- What the events do to the counts depends on the message that is open at the end of the session and on whether
-- there is a preview yet: in_added, in_opens and in_previews hold the outcome for each of these cases, in pairs
-- of without and with a preview.
--
-- The model of one agent means nothing to another: where the session's last agent is not in_first_agent, the model becomes
-- in_other_model; else it stays if in_keeps_model, or becomes in_model.
--
-- The texts are taken for what jsonb can hold until the client has to ask again: to be ready for others, one by one,
-- costs some 20 microseconds of 260. To call functions for what can be said here costs about as much.
CREATE FUNCTION @schema@.append_turn(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer, in_after bigint, in_lease text,
  in_kinds text[], in_events text[], in_added bigint[], in_opens smallint[], in_previews text[],
  in_agent text, in_first_agent text, in_keeps_model boolean, in_model text, in_other_model text, in_requested_model text,
  in_last_prompt text, in_answered boolean, in_last_active text, in_told bigint, in_context_tokens bigint,
  in_completed boolean, in_duration_ms bigint, in_cost_usd double precision,
  in_tokens_in bigint, in_tokens_out bigint, in_used_in text, in_mark text, in_note text,
  OUT outcome text, OUT starts_at bigint, OUT ends_at bigint)
LANGUAGE plpgsql AS $$
DECLARE
  done bigint[];
  events_added bigint := cardinality(in_events);
  has_events boolean := events_added > 0;
  is_watched boolean;
  has_answer boolean;
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
      tokens_out = @schema@.plus(tokens_out, in_tokens_out)
    WHERE project = in_project AND session = in_session AND (in_after IS NULL OR last_seq = in_after)
      AND (in_lease IS NULL OR lease = in_lease)
    RETURNING last_seq - events_added + 1 AS first_added, last_seq, watched_until, answered
  ), added AS (
    INSERT INTO @schema@.events (project, session, seq, kind, json, data)
    SELECT in_project, in_session, first_added - 1 + number, kind, json,
      CASE WHEN in_repeated THEN @schema@.as_jsonb(json) ELSE json::jsonb END
    FROM changed, unnest(in_kinds, in_events) WITH ORDINALITY AS new (kind, json, number)
  ), noted AS (
    INSERT INTO @schema@.operations (project, operation, answer)
    SELECT in_project, in_operation, ARRAY[in_session, first_added, last_seq] FROM changed
  )
  SELECT first_added, last_seq, has_events AND watched_until > clock_timestamp(), answered
  INTO starts_at, ends_at, is_watched, has_answer FROM changed;
  IF NOT FOUND THEN
    SELECT last_seq, CASE WHEN lease IS DISTINCT FROM coalesce(in_lease, lease) THEN 'fenced' ELSE 'moved' END
    INTO ends_at, outcome FROM @schema@.sessions
    WHERE project = in_project AND session = in_session;
    IF NOT FOUND THEN outcome := 'absent'; END IF;
    RETURN;
  END IF;
  IF in_used_in IS NOT NULL AND has_answer THEN
    -- Most turns continue the session of the turn before: that writes nothing.
    INSERT INTO @schema@.last_used AS known (project, used_in, session) VALUES (in_project, in_used_in, in_session)
    ON CONFLICT (project, md5(used_in)) DO UPDATE SET session = EXCLUDED.session WHERE known.session <> EXCLUDED.session;
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
  in_uuid uuid, in_forked_from uuid, in_session_active text,
  in_kinds text[], in_events text[], in_added bigint[], in_opens smallint[], in_previews text[],
  in_agent text, in_first_agent text, in_keeps_model boolean, in_model text, in_other_model text, in_requested_model text,
  in_last_prompt text, in_answered boolean, in_last_active text, in_told bigint, in_context_tokens bigint,
  in_completed boolean, in_duration_ms bigint, in_cost_usd double precision,
  in_tokens_in bigint, in_tokens_out bigint, in_used_in text, in_mark text, in_note text,
  in_after_seqs bigint[], in_summaries text[], in_compacted_at text[], in_covers bigint[],
  in_writers text[], in_opening_chars bigint[], in_openings bigint[],
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
  number := @schema@.insert_session(in_project, in_name, in_worktree, in_created_at, in_uuid, in_forked_from,
    in_session_active);
  PERFORM @schema@.append_turn(in_project, in_operation, in_repeated, number, NULL, NULL, in_kinds, in_events, in_added,
    in_opens, in_previews, in_agent, in_first_agent, in_keeps_model, in_model, in_other_model, in_requested_model,
    in_last_prompt, in_answered, in_last_active, in_told,
    -- With a summary the model will have something else before it.
    CASE WHEN cardinality(in_after_seqs) = 0 THEN in_context_tokens END,
    in_completed, in_duration_ms, in_cost_usd, in_tokens_in, in_tokens_out, in_used_in, in_mark, in_note);
  INSERT INTO @schema@.compactions (project, session, after_seq, summary, created_at, covers, writer, opening_chars, opening)
  SELECT in_project, number, after_seq, summary, created_at, covers, writer, opening_chars, opening
  FROM unnest(in_after_seqs, in_summaries, in_compacted_at, in_covers, in_writers, in_opening_chars, in_openings)
    AS new (after_seq, summary, created_at, covers, writer, opening_chars, opening)
  ON CONFLICT (project, session, after_seq) DO UPDATE
  SET summary = EXCLUDED.summary, created_at = EXCLUDED.created_at, writer = EXCLUDED.writer,
    opening_chars = EXCLUDED.opening_chars, opening = EXCLUDED.opening;
END $$;

-- Copies what stands up to in_at. Outcomes: done, absent, no_event, and changed where the session was cleared
-- since its events were counted (in_generation; nothing where they were not, and in_at is the end).
CREATE FUNCTION @schema@.fork_session(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer, in_at bigint, in_generation bigint,
  in_messages bigint, in_open smallint, in_preview text, in_agent text, in_model text, in_told bigint,
  in_last_prompt text, in_answered boolean, in_requested_model text,
  in_name text, in_worktree text, in_created_at text, in_uuid uuid, in_last_active text,
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
    in_last_prompt := origin.last_prompt; in_answered := origin.answered; in_requested_model := origin.requested_model;
  ELSIF in_at > origin.last_seq THEN
    outcome := 'no_event';
    RETURN;
  ELSIF in_generation <> origin.generation THEN
    outcome := 'changed';
    RETURN;
  END IF;
  outcome := 'done';
  number := @schema@.insert_session(in_project, in_name, in_worktree, in_created_at, in_uuid, origin.uuid, in_last_active);
  INSERT INTO @schema@.events (project, session, seq, kind, json, data)
  SELECT in_project, number, seq, kind, json, data FROM @schema@.events
  WHERE project = in_project AND session = in_session AND seq <= in_at;
  INSERT INTO @schema@.compactions (project, session, after_seq, summary, created_at, covers, writer, opening_chars, opening)
  SELECT in_project, number, after_seq, summary, created_at, covers, writer, opening_chars, opening
  FROM @schema@.compactions
  WHERE project = in_project AND session = in_session AND after_seq <= in_at;
  UPDATE @schema@.sessions SET last_seq = in_at, messages = in_messages, open_message = in_open,
    preview = in_preview, agent = in_agent, model = in_model, told = in_told,
    last_prompt = in_last_prompt, answered = in_answered, requested_model = in_requested_model
  WHERE project = in_project AND session = number;
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[number]);
END $$;

-- Says whether there was such a session.
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
  IF is_watched THEN PERFORM @schema@.ring(in_project, in_session); END IF;
  DELETE FROM @schema@.events WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.compactions WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.marks WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.last_used WHERE project = in_project AND session = in_session;
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[]::bigint[]);
  RETURN true;
END $$;

-- Says whether there is such a session. To clear again clears nothing more, unless somebody has appended since:
-- so this too is done once.
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
  UPDATE @schema@.sessions SET last_seq = 0, messages = 0, open_message = 1, preview = NULL,
    agent = NULL, model = NULL, told = 0, context_tokens = NULL, completed = NULL,
    last_prompt = NULL, answered = false, requested_model = NULL, generation = generation + 1
  WHERE project = in_project AND session = in_session
  RETURNING watched_until > clock_timestamp() INTO is_watched;
  IF is_watched THEN PERFORM @schema@.ring(in_project, in_session); END IF;
  DELETE FROM @schema@.events WHERE project = in_project AND session = in_session;
  DELETE FROM @schema@.compactions WHERE project = in_project AND session = in_session;
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[]::bigint[]);
  RETURN true;
END $$;

-- Outcomes: done, absent, no_event. To lay it again lays the same.
CREATE FUNCTION @schema@.add_compaction(
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
    UPDATE @schema@.sessions SET context_tokens = NULL WHERE project = in_project AND session = in_session;
    outcome := 'done';
  END IF;
END $$;
