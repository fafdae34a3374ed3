-- Every script that changes something goes on with this: nothing is done to a store of a newer format, and nothing
-- is done twice. A client whose connection broke before it heard the answer sends the same operation again, and
-- is told what the answer was.
local known, lifetime = tonumber(take()), take()

local format, last_session, activity = unpack(redis.call('HMGET', project, 'format', 'last_session', 'activity'))
if tonumber(format or '0') > known then return {'newer', format} end

local answer = redis.call('GET', done)
if answer then
  local values = {'done'}
  for value in string.gmatch(answer, '%S+') do values[#values + 1] = value end
  return values
end

-- Remembers that the operation is done, for as long as a client may ask again, and answers with these values.
local function finish(...)
  redis.call('SET', done, table.concat({...}, ' '), 'PX', lifetime)
  return {'done', ...}
end
