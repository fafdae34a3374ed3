-- Deletes the session and all that belongs to it. Answers: done; absent.
local session_number = take()
local name, uuid = unpack(redis.call('HMGET', session, 'name', 'uuid'))
if not name then return {'absent'} end
redis.call('ZREM', names, named(name, session_number))
if uuid then redis.call('ZREM', uuids, named(uuid, session_number)) end
redis.call('ZREMRANGEBYSCORE', last_used, session_number, session_number)
redis.call('ZREM', active, session_number)
redis.call('ZREM', by_time, session_number)
redis.call('HDEL', runs, session_number)
redis.call('HDEL', leases, session_number)
for _, mark in ipairs(redis.call('ZRANGEBYSCORE', marks_by_session, session_number, session_number)) do
  -- A mark of an import tells the next one that the session was deleted.
  if string.sub(mark, 1, 7) == 'native:' then
    redis.call('HSET', marks, mark, '')
  else
    redis.call('HDEL', marks, mark)
    redis.call('ZREM', marks_by_session, mark)
  end
end
redis.call('UNLINK', session, events, compactions, prompts)
return finish()
