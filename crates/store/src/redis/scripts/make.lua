-- Making sessions. The keys of a new session have its number in them, and keys must be known before a script runs:
-- so the client says which number it expects, and is told the right one where somebody was faster.
local number = take()
local next_number = text(tonumber(last_session or '0') + 1)

local function make_session()
  local name, worktree, created_at = take_optional() or ('S' .. number), take(), take()
  redis.call('HSET', project, 'format', format or known, 'last_session', number)
  redis.call('HSET', session, 'name', name, 'worktree', worktree, 'created_at', created_at,
    'active', move_to_front(number))
  redis.call('ZADD', names, 0, named(name, number))
end
