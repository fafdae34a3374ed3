-- Claims the sessions of a project for another name of it. Answers: done, and the name that has them.
local name = take()
local claimed_by = redis.call('HGET', project, 'claimed_by')
if not claimed_by then redis.call('HSET', project, 'claimed_by', name) end
return {'done', claimed_by or name}
