-- Puts a session of an older format at the time of its last activity. Gives one of format 1 its identity, and the counts that
-- format did not have. Answers: done, also where another client was faster; absent.
if not is_there(session) then return {'absent'} end
local session_number, last_active, seconds = take(), take(), take()
if redis.call('ZSCORE', by_time, session_number) then return {'done'} end
local known, stands = unpack(redis.call('HMGET', session, 'uuid', 'active'))
redis.call('HSET', session, 'last_active', last_active)
move_to_time(session_number, seconds, stands)
if known then return {'done'} end
local uuid = take()
for _, field in ipairs({'agent', 'model', 'requested_model', 'last_prompt', 'answered'}) do
  local value = take_optional()
  if value then redis.call('HSET', session, field, value) else redis.call('HDEL', session, field) end
end
-- Format 1 did not count system messages. They are first events, so that every summary covers them.
local more = take()
redis.call('HINCRBY', session, 'told', more)
for _, field in ipairs(redis.call('HKEYS', compactions)) do
  if string.find(field, ':covers$') then redis.call('HINCRBY', compactions, field, more) end
end
local place, opening = newest_summary()
local covered = redis.call('HGET', compactions, place .. ':covers')
if covered then redis.call('HSET', session, 'covered', covered) end
redis.call('HSET', session, 'opening', opening, 'uuid', uuid)
redis.call('ZADD', uuids, 0, named(uuid, session_number))
return {'done'}
