-- Appends a turn. Answers: done, the places of its first and its last event; absent; moved, the last event there is.
local session_number, after = take(), take_optional()
if not is_there(session) then return {'absent'} end
local ends_at = redis.call('HGET', session, 'last_seq') or '0'
if after and after ~= ends_at then return {'moved', ends_at} end
local first, last, count = add_turn(session_number)
if count > 0 then move_to_front(session_number) end
return finish(first, last)
