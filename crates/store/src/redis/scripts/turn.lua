-- Adding a turn to a session.
--
-- The events themselves are no business of the script: Lua hashes every text that it is given byte by byte, which costs more
-- than to store it. They follow in the same transaction, each a command that adds it to the stream that lies aside, if one
-- does. So letting a turn in is laying the stream there; the last command of the transaction puts it back.

-- What a turn may change in the session. Nothing of it is known where the session is made in the same script.
local name, last_lease, stands, last_seq, largest, open_message, preview, messages, duration_ms, cost_usd, tokens_in,
  tokens_out, cache_read, cache_write, told, last_agent, generation, details = unpack(redis.call('HMGET', session, 'name', 'lease',
    'active', 'last_seq', 'largest', 'open_message', 'preview', 'messages', 'duration_ms', 'cost_usd', 'tokens_in',
    'tokens_out', 'cache_read', 'cache_write', 'told', 'agent', 'generation', 'details'))

-- Takes what the events do to the counts. That depends on the message that is open at the end of the session and on
-- whether there is a preview yet: the values hold the outcome for each of these cases, in pairs of without and with a
-- preview, as ADDED OPENS PREVIEW.
local function take_outcome()
  local outcome = ARGV[given + 2 * tonumber(open_message or '1') - (preview and 0 or 1)]
  given = given + 8
  return string.match(outcome, '^(%d+) (%d) (.*)$')
end

-- Returns what details add to `told`, after this turn. The generation of the session stands in front of it: an older client
-- that clears the session does not know of details.
local function sum_of_details(more)
  local now = generation or '0'
  local counted_in, so_far = string.match(details or '', '^(%d+) (-?%d+)$')
  if counted_in ~= now then so_far = 0 end
  return now .. ' ' .. text(so_far + more)
end

-- Lays the stream of the session where the events will be added.
local function lay_aside()
  if tonumber(last_seq or '0') > 0 then
    redis.call('RENAME', events, aside)
  else
    redis.call('XADD', aside, never .. '0', 'kind', '', 'json', '')
    redis.call('XDEL', aside, never .. '0')
  end
end

-- Lets the events in, and returns what becomes of the session by them.
local function add_events(session_number, count)
  lay_aside()
  local last, longest = tonumber(last_seq or '0'), math.max(tonumber(largest or '0'), tonumber(take()))
  for offset in string.gmatch(take(), '%d+') do
    redis.call('ZADD', prompts, last + offset, last + offset)
  end
  local added, opens, new_preview = take_outcome()
  local front = move_to_front(session_number, stands)
  local changes = {'last_seq', last + count, 'largest', longest, 'messages', sum(messages, added),
    'open_message', opens, 'completed', take(), 'duration_ms', sum(duration_ms, take()),
    'cost_usd', math.min((cost_usd or 0) + take(), 1e300), 'told', sum(told, take()), 'details', sum_of_details(take()),
    'context_tokens', take(),
    'active', front}
  local function change(field, value)
    if value ~= '' then
      changes[#changes + 1] = field
      changes[#changes + 1] = string.sub(value, 2)
    end
  end
  local function change_or_remove(field, value)
    if value == '' then redis.call('HDEL', session, field) else change(field, value) end
  end
  change('preview', new_preview)
  local agent, first_agent, model, other_model, requested_model = take(), take_optional(), take(), take(), take()
  change('agent', agent)
  -- The model of one agent means nothing to another.
  if first_agent and first_agent ~= last_agent then
    change_or_remove('model', other_model)
  elseif model ~= '=' then
    change_or_remove('model', model)
  end
  if agent ~= '' then change_or_remove('requested_model', requested_model) end
  change('last_prompt', take())
  change('last_active', take())
  move_to_time(session_number, take(), front)
  change('answered', take())
  return changes
end

-- Adds the turn; returns the places of its first and its last event.
local function add_turn(session_number)
  local count = tonumber(take())
  local changes = count > 0 and add_events(session_number, count) or {}
  -- The events of a turn are counted in the revision as they are.
  if count == 0 then redis.call('HINCRBY', session, 'changes', 1) end
  redis.call('HSET', session, 'tokens_in', sum(tokens_in, take()), 'tokens_out', sum(tokens_out, take()),
    'cache_read', sum(cache_read, take()), 'cache_write', sum(cache_write, take()), unpack(changes))
  local used_in = take_optional()
  if used_in then redis.call('ZADD', last_used, session_number, used_in) end
  local mark = take_optional()
  if mark then
    redis.call('HSET', marks, mark, take())
    redis.call('ZADD', marks_by_session, session_number, mark)
  end
  local last = tonumber(last_seq or '0')
  return text(last + 1), text(last + count)
end
