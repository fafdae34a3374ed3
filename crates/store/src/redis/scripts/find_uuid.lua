-- Answers: done, and the numbers of the sessions of an identity, the one that was active last first.
return sessions_in(uuids, take(), active)
