-- Appends a turn. Answers: done, the places of its first and its last event; absent; fenced, where another lease was given
-- out since its own; moved, the last event there is.
local session_number, lease, after = take(), take_optional(), take_optional()
local found = look_up()
if not found then return {'absent'} end
if lease and lease ~= found.lease then return {'fenced'} end
local ends_at = found.last_seq or '0'
if after and after ~= ends_at then return {'moved', ends_at} end
return finish(add_turn(found, session_number))
