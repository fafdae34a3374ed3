-- Answers: done, and the numbers of the sessions of a name, by their time if that is asked for, the last one first.
return sessions_in(names, take(), take_optional() and by_time or active)
