-- Answers: done, and the numbers of the sessions of a name, the one that was active last first.
return sessions_in(names, take())
