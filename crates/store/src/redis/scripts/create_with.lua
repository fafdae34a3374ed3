-- Makes a session with its first turn and the summaries over it. Answers: done, its number; taken, the number to try;
-- marked, the session that set the mark, the note.
local mark = take_optional()
local marked_by = mark and redis.call('ZSCORE', marks_by_session, mark)
if marked_by then return {'marked', marked_by, redis.call('HGET', marks, mark)} end
if number ~= next_number then return {'taken', next_number} end
make_session()
add_turn(number)
local summaries = tonumber(take())
for _ = 1, summaries do lay_summary(take(), take(), take(), take(), take(), take(), take()) end
if summaries > 0 then note_covered() end
return finish(number)
