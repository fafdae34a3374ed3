-- Every script that changes something continues with this: it changes neither a store of a newer format, nor one of an
-- older format before it is upgraded (upgrade.rs).
local known = tonumber(take())
local format, last_session, activity, upgrading =
  unpack(redis.call('HMGET', project, 'format', 'last_session', 'activity', 'upgrading'))
if tonumber(format or '0') > known then return {'newer', format} end
if upgrading or tonumber(format or known) < known then return {'older'} end
