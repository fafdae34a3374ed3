-- Making sessions. The keys of a new session have its number in them, and keys must be known before a script runs:
-- so the client says which number it expects, and is told the right one where somebody was faster.
local number = take()
local next_number = text(tonumber(last_session or '0') + 1)

-- Creates the session; a fork is given the identity of its origin.
local function make_session(origin_uuid)
  local name, worktree, created_at = take_optional() or ('S' .. number), take(), take()
  local uuid, forked_from, last_active, seconds = take(), take_optional(), take(), take()
  local front = move_to_front(number)
  move_to_time(number, seconds, front)
  forked_from = origin_uuid or forked_from
  redis.call('HSET', project, 'format', format or known, 'last_session', number)
  redis.call('HSET', session, 'name', name, 'worktree', worktree, 'created_at', created_at, 'uuid', uuid,
    'last_active', last_active, 'active', front)
  if forked_from then redis.call('HSET', session, 'forked_from', forked_from) end
  redis.call('ZADD', names, 0, named(name, number))
  redis.call('ZADD', uuids, 0, named(uuid, number))
end
