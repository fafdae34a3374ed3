-- Every script begins with this. All are given the same keys, in the order of `keys.rs`, and touch no others.
local project, active, names, marks, marks_by_session, runs, leases, done = unpack(KEYS, 1, 8)
local session, events, compactions, prompts = unpack(KEYS, 9, 12)

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

-- A whole number as text. What Lua makes of one by itself has an exponent, once it is large.
local function text(number)
  return string.format('%.0f', number)
end

local function is_there(key)
  return redis.call('EXISTS', key) == 1
end
