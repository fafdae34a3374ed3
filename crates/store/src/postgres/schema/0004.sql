-- Version 4: look-up of sessions by the beginning of a name.

-- A name may be longer than an index can hold. Names are compared byte for byte.
CREATE INDEX sessions_by_prefix ON @schema@.sessions (project, (left(name, 100) COLLATE "C"));
