-- Removes a mark. Answers: done; none, where there was none.
local mark = take()
if redis.call('ZREM', marks_by_session, mark) == 0 then return {'none'} end
redis.call('HDEL', marks, mark)
return finish()
