-- Adding a turn to a session.

-- Looks up what a turn may change; nothing where there is no such session.
local function look_up()
  local fields = {'name', 'lease', 'active', 'last_seq', 'largest', 'open_message', 'preview', 'messages', 'duration_ms',
    'cost_usd', 'tokens_in', 'tokens_out'}
  local values = redis.call('HMGET', session, unpack(fields))
  local found = {}
  for index, field in ipairs(fields) do found[field] = values[index] or nil end
  return found.name and found
end

-- Appends the events, and returns what becomes of the session by them.
--
-- What they do to the counts depends on the message that is open at the end of the session and on whether there is a
-- preview yet: the values hold the outcome for each of these cases, in pairs of without and with a preview.
local function add_events(found, session_number, count)
  local last, largest = tonumber(found.last_seq or '0'), tonumber(found.largest or '0')
  for index = 1, count do
    local kind, json = take(), take()
    local seq = text(last + index)
    redis.call('XADD', events, seq .. '-0', 'kind', kind, 'json', json)
    if kind == 'UserMessage' or kind == 'Message' then redis.call('ZADD', prompts, seq, seq) end
    largest = math.max(largest, #json)
  end
  local changes = {'last_seq', text(last + count), 'largest', text(largest)}
  local function change(field, value)
    if value then
      changes[#changes + 1] = field
      changes[#changes + 1] = value
    end
  end
  local chosen = 2 * tonumber(found.open_message or '1') - (found.preview and 0 or 1)
  for case = 1, 8 do
    local added, opens, preview = take(), take(), take_optional()
    if case == chosen then
      change('messages', sum(found.messages, added))
      change('open_message', opens)
      change('preview', preview)
    end
  end
  change('agent', take_optional())
  change('model', take_optional())
  change('completed', take())
  change('duration_ms', sum(found.duration_ms, take()))
  change('cost_usd', string.format('%.17g', math.min(tonumber(found.cost_usd or '0') + tonumber(take()), 1e300)))
  change('active', move_to_front(session_number, found.active))
  return changes
end

-- Adds the turn; returns the places of its first and its last event.
local function add_turn(found, session_number)
  local count = tonumber(take())
  local changes = count > 0 and add_events(found, session_number, count) or {}
  redis.call('HSET', session, 'tokens_in', sum(found.tokens_in, take()),
    'tokens_out', sum(found.tokens_out, take()), unpack(changes))
  local mark = take_optional()
  if mark then
    redis.call('HSET', marks, mark, take())
    redis.call('ZADD', marks_by_session, session_number, mark)
  end
  local last = tonumber(found.last_seq or '0')
  return text(last + 1), text(last + count)
end
