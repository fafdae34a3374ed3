-- Leases: the right to run a turn in a session. The session has the name of the one that was given out last, which stays
-- when it is given back, so that an older one is never taken for it. Until when it lasts, and who has it, is kept with
-- those of the other sessions. To ask again is answered alike, so these scripts need no operation.
local session_number, lease = take(), take()
local name, last_lease = unpack(redis.call('HMGET', session, 'name', 'lease'))
if not name then return {'absent'} end
local ends_at, holder = string.match(redis.call('HGET', leases, session_number) or '', '^(%d+) (.*)$')

-- The time on the clock of the server, in milliseconds.
local function now()
  local seconds, microseconds = unpack(redis.call('TIME'))
  return tonumber(seconds) * 1000 + math.floor(tonumber(microseconds) / 1000)
end

local function lend(to, lasts)
  redis.call('HSET', leases, session_number, text(now() + tonumber(lasts)) .. ' ' .. to)
end
