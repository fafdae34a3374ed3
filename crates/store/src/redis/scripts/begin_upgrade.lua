-- Begins to upgrade a store of an older format. From now on clients of that format are refused. Answers: done; none, where
-- there is nothing to upgrade; newer.
local known = tonumber(take())
local format, upgrading = unpack(redis.call('HMGET', project, 'format', 'upgrading'))
if tonumber(format or '0') > known then return {'newer', format} end
if not format or (tonumber(format) == known and not upgrading) then return {'none'} end
redis.call('HSET', project, 'format', known, 'upgrading', '1')
return {'done'}
