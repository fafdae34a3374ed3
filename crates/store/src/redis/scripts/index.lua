-- How sessions are found: by when they were active, and by their names.

-- Puts a session at the front of the list, and returns how it stands there. The one that is there stays as it is.
local function move_to_front(session_number, stands)
  if stands and stands == activity then return stands end
  local front = text(redis.call('HINCRBY', project, 'activity', 1))
  redis.call('ZADD', active, front, session_number)
  return front
end

-- Puts a session at the time of its last activity, in seconds since 1970. Of equal times the one that stands further to the front
-- is the later one. Both are one number: it has 53 bits, which are exact until the year 2106.
local function move_to_time(session_number, seconds, stands)
  redis.call('ZADD', by_time, text(seconds * 2097152 + stands % 2097152), session_number)
end

-- How a session stands in the index of names. The number is what follows the last NUL, so any name will do.
local function named(name, session_number)
  return name .. '\0' .. session_number
end
