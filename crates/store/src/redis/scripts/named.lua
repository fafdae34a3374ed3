-- Returns the answer of a look-up: done, and these numbers of sessions, the last one of an order (active, or by_time) first.
local function in_order(session_numbers, order)
  local found = {}
  for place, session_number in ipairs(session_numbers) do
    found[place] = {number = session_number, stands = tonumber(redis.call('ZSCORE', order, session_number) or '0')}
  end
  table.sort(found, function(one, other) return one.stands > other.stands end)
  local answer = {'done'}
  for place, each in ipairs(found) do answer[place + 1] = each.number end
  return answer
end

-- Returns the sessions that an index (names, or uuids) has under a text, as such an answer.
local function sessions_in(index, name, order)
  local prefix = named(name, '')
  -- Digits end before the colon. What begins like this and is no number belongs to a name that has a NUL in it.
  local found = {}
  for _, member in ipairs(redis.call('ZRANGEBYLEX', index, '[' .. prefix, '(' .. prefix .. ':')) do
    local session_number = string.sub(member, #prefix + 1)
    if string.find(session_number, '^%d+$') then found[#found + 1] = session_number end
  end
  return in_order(found, order)
end
