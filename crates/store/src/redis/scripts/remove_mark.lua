-- Removes a mark. Answers: done; none, where there was none.
local mark = take()
-- The session of a mark that is gone is not known. A repeat follows its first try, so the last operation is enough.
if redis.call('HGET', project, 'removed_mark') == operation then return {'done'} end
if redis.call('ZREM', marks_by_session, mark) == 0 then return {'none'} end
redis.call('HDEL', marks, mark)
redis.call('HSET', project, 'removed_mark', operation)
return finish()
