-- Appends a turn. Answers: done, the places of its first and its last event; absent; fenced, where another lease was given
-- out since its own; moved, the last event there is.
local session_number, lease, after = take(), take_optional(), take_optional()
if not name then return {'absent'} end
if lease and lease ~= last_lease then return {'fenced'} end
local ends_at = last_seq or '0'
if after and after ~= ends_at then return {'moved', ends_at} end
return finish(add_turn(session_number))
