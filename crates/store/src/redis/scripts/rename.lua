-- Gives the session another name. Answers: done; absent.
local session_number, name = take(), take()
local before = redis.call('HGET', session, 'name')
if not before then return {'absent'} end
redis.call('ZREM', names, named(before, session_number))
redis.call('ZADD', names, 0, named(name, session_number))
redis.call('HSET', session, 'name', name)
redis.call('HINCRBY', session, 'changes', 1)
return finish()
