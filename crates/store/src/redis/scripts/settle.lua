-- Notes under which name the sessions of a project are kept. Answers: done, and that name.
local kept_as = take()
local known = redis.call('HGET', project, 'kept_as')
if not known then redis.call('HSET', project, 'kept_as', kept_as) end
return {'done', known or kept_as}
