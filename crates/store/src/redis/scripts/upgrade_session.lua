-- Gives a session of format 1 its identity, and the counts that format did not have. Answers: done, also where another
-- client was faster; absent.
if not is_there(session) then return {'absent'} end
if redis.call('HGET', session, 'uuid') then return {'done'} end
local session_number, uuid = take(), take()
for _, field in ipairs({'agent', 'model', 'requested_model', 'last_prompt', 'answered'}) do
  local value = take_optional()
  if value then redis.call('HSET', session, field, value) else redis.call('HDEL', session, field) end
end
local _, opening = newest_summary()
redis.call('HSET', session, 'opening', opening, 'uuid', uuid)
redis.call('ZADD', uuids, 0, named(uuid, session_number))
return {'done'}
