-- Lays a summary over the events up to a place. Answers: done; absent; no_event, the last event there is.
if not is_there(session) then return {'absent'} end
local after, last = take(), redis.call('HGET', session, 'last_seq') or '0'
if tonumber(after) < 1 or tonumber(after) > tonumber(last) then return {'no_event', last} end
lay_summary(after, take(), take(), take(), take(), take(), take())
note_covered()
redis.call('HINCRBY', session, 'changes', 1)
return finish()
