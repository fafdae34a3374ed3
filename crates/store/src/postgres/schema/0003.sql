-- Version 3: how much of the tokens sent was read from the provider's cache, and written to it.

ALTER TABLE @schema@.sessions
  ADD COLUMN cache_read bigint NOT NULL DEFAULT 0,
  ADD COLUMN cache_write bigint NOT NULL DEFAULT 0;

-- What earlier turns reported is in the events that end them. Where these tell of more input than was counted, some of the
-- events came from another session, as in a fork: then both begin at 0. Only whole numbers count; any others come from
-- another program.
WITH reported AS (
  SELECT project, session,
    sum(CASE WHEN usage->>'input_tokens' ~ '^[0-9]{1,18}$' THEN (usage->>'input_tokens')::bigint END) AS input,
    sum(CASE WHEN usage->>'cache_read_tokens' ~ '^[0-9]{1,18}$' THEN (usage->>'cache_read_tokens')::bigint END) AS cache_read,
    sum(CASE WHEN usage->>'cache_write_tokens' ~ '^[0-9]{1,18}$' THEN (usage->>'cache_write_tokens')::bigint END) AS cache_write
  FROM (SELECT project, session, data->'Complete'->'usage' AS usage FROM @schema@.events WHERE kind = 'Complete') AS ends
  GROUP BY project, session
)
UPDATE @schema@.sessions SET
  cache_read = LEAST(coalesce(reported.cache_read, 0), tokens_in)::bigint,
  cache_write = LEAST(coalesce(reported.cache_write, 0), tokens_in)::bigint
FROM reported
WHERE sessions.project = reported.project AND sessions.session = reported.session AND reported.input <= tokens_in
  AND (reported.cache_read > 0 OR reported.cache_write > 0);

-- A client of version 2 that still runs would not count them: its calls fail, and what it has to store is recovered by its
-- next start.
DROP FUNCTION @schema@.create_with;
DROP FUNCTION @schema@.append_turn;
DROP FUNCTION @schema@.add_tokens;

-- As in version 2, with the tokens of the cache.
CREATE FUNCTION @schema@.append_turn(
  in_project text, in_operation uuid, in_repeated boolean, in_session integer, in_after bigint, in_lease text,
  in_kinds text[], in_events text[], in_added bigint[], in_opens smallint[], in_previews text[],
  in_agent text, in_first_agent text, in_keeps_model boolean, in_model text, in_other_model text, in_requested_model text,
  in_last_prompt text, in_answered boolean, in_last_active text, in_told bigint, in_context_tokens bigint,
  in_completed boolean, in_duration_ms bigint, in_cost_usd double precision,
  in_tokens_in bigint, in_tokens_out bigint, in_cache_read bigint, in_cache_write bigint, in_used_in text, in_mark text, in_note text,
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
      tokens_out = @schema@.plus(tokens_out, in_tokens_out),
      cache_read = @schema@.plus(cache_read, in_cache_read),
      cache_write = @schema@.plus(cache_write, in_cache_write)
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
  in_tokens_in bigint, in_tokens_out bigint, in_cache_read bigint, in_cache_write bigint, in_used_in text, in_mark text, in_note text,
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
    in_completed, in_duration_ms, in_cost_usd, in_tokens_in, in_tokens_out, in_cache_read, in_cache_write, in_used_in,
    in_mark, in_note);
  INSERT INTO @schema@.compactions (project, session, after_seq, summary, created_at, covers, writer, opening_chars, opening)
  SELECT in_project, number, after_seq, summary, created_at, covers, writer, opening_chars, opening
  FROM unnest(in_after_seqs, in_summaries, in_compacted_at, in_covers, in_writers, in_opening_chars, in_openings)
    AS new (after_seq, summary, created_at, covers, writer, opening_chars, opening)
  ON CONFLICT (project, session, after_seq) DO UPDATE
  SET summary = EXCLUDED.summary, created_at = EXCLUDED.created_at, writer = EXCLUDED.writer,
    opening_chars = EXCLUDED.opening_chars, opening = EXCLUDED.opening;
END $$;

-- Says whether there is such a session.
CREATE FUNCTION @schema@.add_tokens(
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
    cache_read = @schema@.plus(cache_read, in_cache_read), cache_write = @schema@.plus(cache_write, in_cache_write)
  WHERE project = in_project AND session = in_session;
  PERFORM @schema@.note_done(in_project, in_operation, ARRAY[]::bigint[]);
  RETURN true;
END $$;
