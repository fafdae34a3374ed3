-- Appends a turn. Answers: done, the places of its first and its last event; absent; moved, the last event there is.
local session_number, after = take(), take_optional()
local found = look_up()
if not found then return {'absent'} end
local ends_at = found.last_seq or '0'
if after and after ~= ends_at then return {'moved', ends_at} end
return finish(add_turn(found, session_number))
