-- Answers with the numbers of the sessions of a name.
return sessions_named(take())
