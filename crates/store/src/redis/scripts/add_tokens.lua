-- Adds to the token totals of the session. Answers: done; absent.
local name, tokens_in, tokens_out, cache_read, cache_write =
  unpack(redis.call('HMGET', session, 'name', 'tokens_in', 'tokens_out', 'cache_read', 'cache_write'))
if not name then return {'absent'} end
if remembered() then return {'done'} end
redis.call('HSET', session, 'tokens_in', sum(tokens_in, take()), 'tokens_out', sum(tokens_out, take()),
  'cache_read', sum(cache_read, take()), 'cache_write', sum(cache_write, take()))
redis.call('HINCRBY', session, 'changes', 1)
remember()
return finish()
