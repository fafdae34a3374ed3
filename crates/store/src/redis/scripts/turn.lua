-- Adding a turn to the session.

-- Adds to a number of the session, and stops at what it can hold.
local function add(field, amount)
  if amount == '0' then return end
  local sum = redis.pcall('HINCRBY', session, field, amount)
  if type(sum) == 'table' then redis.call('HSET', session, field, '9223372036854775807') end
end

-- Appends the events; returns the places of the first and the last. What they do to the counts depends on the message
-- that is open at the end of the session and on whether there is a preview yet: the values hold the outcome for
-- each of these cases, in pairs of without and with a preview.
local function add_events(count)
  local fields = {'last_seq', 'largest', 'open_message', 'preview', 'messages', 'cost_usd'}
  local last, largest, open, preview, messages, cost = unpack(redis.call('HMGET', session, unpack(fields)))
  last, largest = tonumber(last or '0'), tonumber(largest or '0')
  for index = 1, count do
    local kind, json = take(), take()
    redis.call('XADD', events, text(last + index) .. '-0', 'kind', kind, 'json', json)
    if #json > largest then largest = #json end
  end

  local chosen = 2 * tonumber(open or '1') - (preview and 0 or 1)
  for case = 1, 8 do
    local added, opens, brought = take(), take(), take_optional()
    if case == chosen then
      redis.call('HSET', session, 'messages', text(tonumber(messages or '0') + tonumber(added)), 'open_message', opens)
      if brought then redis.call('HSET', session, 'preview', brought) end
    end
  end
  local agent, model, completed = take_optional(), take_optional(), take()
  if agent then redis.call('HSET', session, 'agent', agent) end
  if model then redis.call('HSET', session, 'model', model) end
  add('duration_ms', take())
  cost = math.min(tonumber(cost or '0') + tonumber(take()), 1e300)
  redis.call('HSET', session, 'last_seq', text(last + count), 'largest', text(largest),
    'completed', completed, 'cost_usd', string.format('%.17g', cost))
  return text(last + 1), text(last + count)
end

local function add_turn(session_number)
  local count = tonumber(take())
  local first, last
  if count > 0 then
    first, last = add_events(count)
  else
    last = redis.call('HGET', session, 'last_seq') or '0'
    first = text(tonumber(last) + 1)
  end
  add('tokens_in', take())
  add('tokens_out', take())
  local mark = take_optional()
  if mark then
    redis.call('HSET', marks, mark, take())
    redis.call('ZADD', marks_by_session, session_number, mark)
  end
  return first, last, count
end
