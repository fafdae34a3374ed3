-- A change that would be another one if it were done again is done once: the operations of a session have what was done, with
-- the generation of the session and the answer. A repeat is answered from there, at any later time. They go with the session, so
-- that it does not depend on a clock whether a turn is stored once.
local operation = take()

-- Returns the generation in which the operation was done, and up to two numbers of its answer; nothing if it was not done.
local function remembered()
  return string.match(redis.call('HGET', operations, operation) or '', '^(%d+) ?(%d*) ?(%d*)$')
end

-- Remembers that the operation is done.
local function remember(generation, ...)
  redis.call('HSET', operations, operation, table.concat({generation or '0', ...}, ' '))
end

-- Answers with these values. Wakes whoever watches the project, once the transaction is over.
local function finish(...)
  if redis.call('EXISTS', watched) == 1 then redis.call('XADD', changed, 'MAXLEN', 1, '*', 'in', project) end
  return {'done', ...}
end
