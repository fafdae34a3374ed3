-- Appends a turn. Answers: done, the places of its first and its last event; absent; fenced, where another lease was given
-- out since its own; moved, the last event there is.
local session_number, lease, after, ends_run = take(), take_optional(), take_optional(), take_optional()
if not name then return {'absent'} end
if lease and lease ~= last_lease then return {'fenced'} end
local ends_at = last_seq or '0'
if after and after ~= ends_at then return {'moved', ends_at} end
local first, last = add_turn(session_number)
if ends_run then redis.call('HDEL', runs, session_number) end
return finish(first, last)
