-- Every script that touches a key begins with this. All are given the same keys, in the order of `keys.rs`, and touch no others.
local project, active, by_time, names, uuids, marks, marks_by_session, last_used, runs, leases, aside, tombstones, watched, changed =
  unpack(KEYS, 1, 14)
local session, events, compactions, prompts, operations = unpack(KEYS, 15, 19)

-- What the places of events in a stream begin with: a time that never comes. The server gives an event the next place by
-- itself, and as long as the time of the last one is not over that is the same time with the next number.
local never = '9999999999999999-'

local given = 0

-- The next of the values that the script was given.
local function take()
  given = given + 1
  return ARGV[given]
end

-- The next value, where it may be missing: nothing is empty, and anything else stands behind a sign.
local function take_optional()
  local value = take()
  if value ~= '' then return string.sub(value, 2) end
end

-- A whole number as text. What Lua makes of one by itself has an exponent, once it is large; what is made of one that a
-- command is given has not.
local function text(number)
  return string.format('%.0f', number)
end

local function is_there(key)
  return redis.call('EXISTS', key) == 1
end
