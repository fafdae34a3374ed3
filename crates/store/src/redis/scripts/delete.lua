-- Deletes the session and all that belongs to it. Answers: done; absent.
local session_number, present = take(), take()
if redis.call('HGET', operations, 'deleted') == operation then return {'done'} end
local name, uuid, last_seq = unpack(redis.call('HMGET', session, 'name', 'uuid', 'last_seq'))
if not name then return {'absent'} end
-- Another session with this identity is what is left of it.
if uuid and #sessions_in(uuids, uuid, active) <= 2 then
  local tombstone, deleted_at, _, revived_at = tombstone_of(uuid)
  local newest = revived_at ~= '-' and revived_at or deleted_at
  set_tombstone(tombstone, uuid, later_than(present, newest), last_seq or '0')
end
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
-- Repeats of its creation and of this are still known.
local created = redis.call('HGET', operations, 'created')
redis.call('UNLINK', session, events, compactions, prompts, operations)
redis.call('HSET', operations, 'deleted', operation, 'created', created or '')
return finish()
