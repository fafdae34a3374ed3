-- Adds to the token totals of the session. Answers: done; absent.
local name, tokens_in, tokens_out = unpack(redis.call('HMGET', session, 'name', 'tokens_in', 'tokens_out'))
if not name then return {'absent'} end
redis.call('HSET', session, 'tokens_in', sum(tokens_in, take()), 'tokens_out', sum(tokens_out, take()))
return finish()
