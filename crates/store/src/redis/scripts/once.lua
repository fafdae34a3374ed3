-- A change that would be another one if it were done again is done once. A client whose connection broke before it
-- heard the answer sends the same operation again, and is told what the answer was.
local lifetime = take()
local answer = redis.call('GET', done)
if answer then
  local values = {'done'}
  for value in string.gmatch(answer, '%S+') do values[#values + 1] = value end
  return values
end

-- Remembers that the operation is done, for as long as a client may ask again, and answers with these values. Wakes whoever
-- watches the project, once the transaction is over.
local function finish(...)
  if redis.call('EXISTS', watched) == 1 then redis.call('XADD', changed, 'MAXLEN', 1, '*', 'in', project) end
  redis.call('SET', done, table.concat({...}, ' '), 'PX', lifetime)
  return {'done', ...}
end
