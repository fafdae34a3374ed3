-- Answers: done, and the numbers of the sessions whose names begin with a text, by their time if that is asked for, the last one
-- first.
local prefix, order = take(), take_optional() and by_time or active
local found = {}
-- No byte of UTF-8 is 255.
for _, member in ipairs(redis.call('ZRANGEBYLEX', names, '[' .. prefix, '(' .. prefix .. '\255')) do
  -- The number follows the last NUL.
  local name, session_number = string.match(member, '^(.*)%z(%d+)$')
  if name and string.sub(name, 1, #prefix) == prefix and name ~= 'S' .. session_number then
    found[#found + 1] = session_number
  end
end
return in_order(found, order)
