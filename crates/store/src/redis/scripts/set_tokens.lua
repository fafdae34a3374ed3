-- Overwrites the token totals of the session. Answers: done; absent.
if not is_there(session) then return {'absent'} end
redis.call('HSET', session, 'tokens_in', take(), 'tokens_out', take(), 'cache_read', take(), 'cache_write', take())
redis.call('HINCRBY', session, 'changes', 1)
return finish()
