-- Every script that changes something goes on with this: nothing is done to a store of a newer format.
local known = tonumber(take())
local format, last_session, activity = unpack(redis.call('HMGET', project, 'format', 'last_session', 'activity'))
if tonumber(format or '0') > known then return {'newer', format} end
