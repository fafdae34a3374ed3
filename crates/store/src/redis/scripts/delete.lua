-- Deletes the session and all that belongs to it. Answers: done; absent.
local session_number = take()
local name = redis.call('HGET', session, 'name')
if not name then return {'absent'} end
redis.call('ZREM', names, named(name, session_number))
redis.call('ZREM', active, session_number)
redis.call('HDEL', runs, session_number)
redis.call('HDEL', leases, session_number)
for _, mark in ipairs(redis.call('ZRANGEBYSCORE', marks_by_session, session_number, session_number)) do
  redis.call('HDEL', marks, mark)
end
redis.call('ZREMRANGEBYSCORE', marks_by_session, session_number, session_number)
redis.call('UNLINK', session, events, compactions, prompts)
return finish()
