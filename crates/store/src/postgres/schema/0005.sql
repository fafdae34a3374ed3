-- Version 5: lists are in the order of the last activity by its time. The functions are those of version 4.

-- Sessions of version 1 have no time. One was active no earlier than it was created, nor than the sessions before it in the order
-- of changes. A time in the future is that of a wrong clock.
UPDATE @schema@.sessions SET last_active = known.latest
FROM (
  SELECT project, session, max(CASE WHEN time <= present THEN time END) OVER (PARTITION BY project ORDER BY active) AS latest
  FROM (
    SELECT project, session, active, coalesce(nullif(last_active, ''), created_at) COLLATE "C" AS time,
      to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS present
    FROM @schema@.sessions
  ) AS timed
) AS known
WHERE sessions.project = known.project AND sessions.session = known.session
  AND sessions.last_active = '' AND known.latest IS NOT NULL;

CREATE INDEX sessions_by_last_active ON @schema@.sessions (project, last_active COLLATE "C" DESC, active DESC);
