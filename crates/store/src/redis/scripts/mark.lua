-- Answers: done, the session that set the mark, the note; none.
local mark = take()
local marked_by = redis.call('ZSCORE', marks_by_session, mark)
if not marked_by then return {'none'} end
return {'done', marked_by, redis.call('HGET', marks, mark)}
