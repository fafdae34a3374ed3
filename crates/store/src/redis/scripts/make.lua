-- Making sessions. The keys of a new session have its number in them, and keys must be known before a script runs:
-- so the client says which number it expects, and is told the right one where somebody was faster.
local number = take()
if redis.call('HGET', operations, 'created') == operation then return {'done', number} end
local next_number = text(tonumber(last_session or '0') + 1)

-- Creates the session; a fork is given the identity of its origin.
local function make_session(origin_uuid)
  local own_name, named_at, worktree, created_at = take_optional(), take_optional(), take(), take()
  local uuid, forked_from, present, last_active, seconds = take(), take_optional(), take(), take(), take()
  local name = own_name or ('S' .. number)
  local front = move_to_front(number)
  move_to_time(number, seconds, front)
  forked_from = origin_uuid or forked_from
  redis.call('HSET', project, 'format', format or known, 'last_session', number)
  redis.call('HSET', session, 'name', name, 'worktree', worktree, 'created_at', created_at, 'uuid', uuid,
    'last_active', last_active, 'active', front)
  redis.call('HSET', operations, 'created', operation)
  if own_name then redis.call('HSET', session, 'named_at', named_at or present) end
  if forked_from then redis.call('HSET', session, 'forked_from', forked_from) end
  redis.call('ZADD', names, 0, named(name, number))
  redis.call('ZADD', uuids, 0, named(uuid, number))
  local tombstone, deleted_at, count, revived_at = tombstone_of(uuid)
  if tombstone then
    local newest = revived_at ~= '-' and revived_at or deleted_at
    set_tombstone(tombstone, uuid, deleted_at, count, later_than(present, newest))
  end
end
