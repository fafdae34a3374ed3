-- Gives the session another name. Answers: done; absent.
local session_number, name, present = take(), take(), take()
local before, named_at = unpack(redis.call('HMGET', session, 'name', 'named_at'))
if not before then return {'absent'} end
redis.call('ZREM', names, named(before, session_number))
redis.call('ZADD', names, 0, named(name, session_number))
redis.call('HSET', session, 'name', name, 'named_at', later_than(present, named_at or nil))
redis.call('HINCRBY', session, 'changes', 1)
return finish()
