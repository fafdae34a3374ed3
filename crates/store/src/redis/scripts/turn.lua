-- Adding a turn to a session.

-- What a turn may change in the session. Nothing of it is known where the session is made in the same script.
local name, last_lease, stands, last_seq, largest, open_message, preview, messages, duration_ms, cost_usd, tokens_in,
  tokens_out = unpack(redis.call('HMGET', session, 'name', 'lease', 'active', 'last_seq', 'largest', 'open_message',
    'preview', 'messages', 'duration_ms', 'cost_usd', 'tokens_in', 'tokens_out'))

-- Takes what the events do to the counts. That depends on the message that is open at the end of the session and on
-- whether there is a preview yet: the values hold the outcome for each of these cases, in pairs of without and with a
-- preview, as ADDED OPENS PREVIEW.
local function take_outcome()
  local outcome = ARGV[given + 2 * tonumber(open_message or '1') - (preview and 0 or 1)]
  given = given + 8
  return string.match(outcome, '^(%d+) (%d) (.*)$')
end

-- Appends the events, and returns what becomes of the session by them.
local function add_events(session_number, count)
  local last, longest = tonumber(last_seq or '0'), tonumber(largest or '0')
  for seq = last + 1, last + count do
    local kind, json = take(), take()
    redis.call('XADD', events, seq, 'kind', kind, 'json', json)
    if kind == 'UserMessage' or kind == 'Message' then redis.call('ZADD', prompts, seq, seq) end
    if #json > longest then longest = #json end
  end
  local added, opens, new_preview = take_outcome()
  local changes = {'last_seq', last + count, 'largest', longest, 'messages', sum(messages, added),
    'open_message', opens, 'completed', take(), 'duration_ms', sum(duration_ms, take()),
    'cost_usd', math.min((cost_usd or 0) + take(), 1e300),
    'active', move_to_front(session_number, stands)}
  for field, value in pairs({agent = take_optional(), model = take_optional(), preview = as_optional(new_preview)}) do
    changes[#changes + 1] = field
    changes[#changes + 1] = value
  end
  return changes
end

-- Adds the turn; returns the places of its first and its last event.
local function add_turn(session_number)
  local count = tonumber(take())
  local changes = count > 0 and add_events(session_number, count) or {}
  redis.call('HSET', session, 'tokens_in', sum(tokens_in, take()), 'tokens_out', sum(tokens_out, take()),
    unpack(changes))
  local mark = take_optional()
  if mark then
    redis.call('HSET', marks, mark, take())
    redis.call('ZADD', marks_by_session, session_number, mark)
  end
  local last = tonumber(last_seq or '0')
  return text(last + 1), text(last + count)
end
