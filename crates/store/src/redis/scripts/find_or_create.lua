-- Finds the session of a name that was active last, or makes one. Answers: done, its number; taken, the number to try.
local found = sessions_in(names, take(), active)[2]
if found then return {'done', found} end
if number ~= next_number then return {'taken', next_number} end
make_session()
return finish(number)
