-- Deletes the session and all that belongs to it. Answers: done; absent.
local session_number = take()
local name, uuid = unpack(redis.call('HMGET', session, 'name', 'uuid'))
if not name then return {'absent'} end
redis.call('ZREM', names, named(name, session_number))
if uuid then redis.call('ZREM', uuids, named(uuid, session_number)) end
redis.call('ZREMRANGEBYSCORE', last_used, session_number, session_number)
redis.call('ZREM', active, session_number)
redis.call('HDEL', runs, session_number)
redis.call('HDEL', leases, session_number)
for _, mark in ipairs(redis.call('ZRANGEBYSCORE', marks_by_session, session_number, session_number)) do
  redis.call('HDEL', marks, mark)
end
redis.call('ZREMRANGEBYSCORE', marks_by_session, session_number, session_number)
redis.call('UNLINK', session, events, compactions, prompts)
return finish()
