-- Makes a session. Answers: done, its number; taken, the number to try.
if number ~= next_number then return {'taken', next_number} end
make_session()
return finish(number)
