-- How sessions are found: by when they were active, and by their names.

-- Puts a session at the front of the list.
local function move_to_front(session_number)
  redis.call('ZADD', active, redis.call('HINCRBY', project, 'activity', 1), session_number)
end

-- How a session stands in the index of names. The number is what follows the last NUL, so any name will do.
local function named(name, session_number)
  return name .. '\0' .. session_number
end
