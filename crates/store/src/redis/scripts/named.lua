-- Returns the sessions that an index (names, or uuids) has under a text, the one that was active last first.
local function sessions_in(index, name)
  local prefix = named(name, '')
  -- Digits end before the colon. What begins like this and is no number belongs to a name that has a NUL in it.
  local found = {}
  for _, member in ipairs(redis.call('ZRANGEBYLEX', index, '[' .. prefix, '(' .. prefix .. ':')) do
    local session_number = string.sub(member, #prefix + 1)
    if string.find(session_number, '^%d+$') then
      found[#found + 1] = {number = session_number, active = tonumber(redis.call('ZSCORE', active, session_number))}
    end
  end
  table.sort(found, function(one, other) return one.active > other.active end)
  local numbers = {}
  for place, each in ipairs(found) do numbers[place] = each.number end
  return numbers
end
