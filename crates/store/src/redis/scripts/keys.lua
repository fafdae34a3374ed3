-- Every script begins with this. All are given the same keys, in the order of `keys.rs`, and touch no others.
local project, active, names, marks, marks_by_session, runs, leases, done = unpack(KEYS, 1, 8)
local session, events, compactions, prompts = unpack(KEYS, 9, 12)

local given = 0

-- The next of the values that the script was given.
local function take()
  given = given + 1
  return ARGV[given]
end

-- A value that may be missing: nothing is empty, and anything else stands behind a sign.
local function as_optional(value)
  if value ~= '' then return string.sub(value, 2) end
end

local function take_optional()
  return as_optional(take())
end

-- A whole number as text. What Lua makes of one by itself has an exponent, once it is large; what is made of one that a
-- command is given has not.
local function text(number)
  return string.format('%.0f', number)
end

local function is_there(key)
  return redis.call('EXISTS', key) == 1
end
