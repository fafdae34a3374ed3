-- Appends a turn. Answers: done, the places of its first and its last event; absent; cleared, where the session was cleared since
-- the caller has first sent it; fenced, where another lease was given
-- out since its own; moved, the last event there is.
local session_number, lease, after, ends_run = take(), take_optional(), take_optional(), take_optional()
local sent_in = take_optional()
if not name then return {'absent'} end
local present = generation or '0'
local done_in, done_first, done_last = remembered()
if (sent_in or present) ~= present or (done_in or present) ~= present then return {'cleared'} end
if done_in then return {'done', done_first, done_last} end
if lease and lease ~= last_lease then return {'fenced'} end
local ends_at = last_seq or '0'
if after and after ~= ends_at then return {'moved', ends_at} end
local first, last = add_turn(session_number)
if ends_run then redis.call('HDEL', runs, session_number) end
remember(present, first, last)
return finish(first, last)
