-- What is left of deleted sessions, in the order of their UUIDs: UUID, time, number of events, and when a session of this UUID was
-- created again, - if none was.

-- Returns the entry of a UUID, and its parts; nothing if there is none.
local function tombstone_of(uuid)
  local entry = redis.call('ZRANGEBYLEX', tombstones, '[' .. uuid .. ' ', '(' .. uuid .. '!')[1]
  if entry then return entry, string.match(entry, '^%S+ (%S+) (%S+) (%S+)$') end
end

local function set_tombstone(before, uuid, deleted_at, count, revived_at)
  if before then redis.call('ZREM', tombstones, before) end
  redis.call('ZADD', tombstones, 0, table.concat({uuid, deleted_at, count, revived_at or '-'}, ' '))
end
