-- Making sessions. The keys of a new session have its number in them, and keys must be known before a script runs:
-- so the client says which number it expects, and is told the right one where somebody was faster.
local number = take()

local function next_number()
  return text(tonumber(redis.call('HGET', project, 'last_session') or '0') + 1)
end

local function make_session()
  local name = take_optional() or ('S' .. number)
  redis.call('HSETNX', project, 'format', known)
  redis.call('HSET', project, 'last_session', number)
  redis.call('HSET', session, 'name', name, 'worktree', take(), 'created_at', take())
  redis.call('ZADD', names, 0, named(name, number))
  move_to_front(number)
end
