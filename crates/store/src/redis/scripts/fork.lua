-- Makes a session of what another one holds up to a place. Answers: done, its number; taken, the number to try; absent;
-- no_event, the last event there is; changed, where the session was cleared since its events were counted.
local origin, origin_events, origin_compactions, origin_prompts = unpack(KEYS, 20, 23)
local at, generation = tonumber(take()), take_optional()
local messages, open, preview, agent, model = take(), take(), take_optional(), take_optional(), take_optional()
local told, details, last_prompt, answered, requested_model =
  take(), take(), take_optional(), take_optional(), take_optional()
if not is_there(origin) then return {'absent'} end

local fields = {'last_seq', 'largest', 'generation', 'messages', 'open_message', 'preview', 'agent', 'model', 'told',
  'last_prompt', 'answered', 'requested_model', 'uuid', 'details'}
local found = redis.call('HMGET', origin, unpack(fields))
local last = tonumber(found[1] or '0')
if not generation then
  -- All of it: its counts are those of the origin.
  at, messages, open = last, found[4] or '0', found[5] or '1'
  preview, agent, model, told = found[6], found[7], found[8], found[9] or '0'
  last_prompt, answered, requested_model = found[10], found[11], found[12]
  local counted_in, added = string.match(found[14] or '', '^(%d+) (-?%d+)$')
  details = counted_in == (found[3] or '0') and added or '0'
elseif at > last then
  return {'no_event', text(last)}
elseif generation ~= (found[3] or '0') then
  return {'changed'}
end
if number ~= next_number then return {'taken', next_number} end

-- Makes the stream end at a place as if it had never gone on. Servers before 7.0 do not note what was removed from a stream.
local function end_at(seq)
  local set = redis.pcall('XSETID', events, never .. seq, 'ENTRIESADDED', text(seq + 1), 'MAXDELETEDID', never .. '0')
  if set.err then redis.call('XSETID', events, never .. seq) end
end

-- Copied as a whole, which is quick, and then cut off; its next event follows the last that stays. A server that is too
-- old for that says so here, before anything is made.
if at > 0 then
  redis.call('COPY', origin_events, events, 'REPLACE')
  for from = at + 1, last, 1000 do
    local cut = {}
    for seq = from, math.min(from + 999, last) do cut[#cut + 1] = never .. text(seq) end
    redis.call('XDEL', events, unpack(cut))
  end
  if at < last then end_at(text(at)) end
  redis.call('COPY', origin_prompts, prompts, 'REPLACE')
  redis.call('ZREMRANGEBYSCORE', prompts, '(' .. text(at), '+inf')
end
make_session(found[13])
local summaries = redis.call('HGETALL', origin_compactions)
for index = 1, #summaries, 2 do
  if tonumber(string.match(summaries[index], '^%d+')) <= at then
    redis.call('HSET', compactions, summaries[index], summaries[index + 1])
    local covered = redis.call('HGET', origin, 'details:' .. summaries[index])
    if covered then redis.call('HSET', session, 'details:' .. summaries[index], covered) end
  end
end
redis.call('HSET', session, 'last_seq', text(at), 'largest', found[2] or '0', 'messages', messages, 'open_message', open,
  'told', told, 'details', '0 ' .. details)
note_covered()
for field, value in pairs({preview = preview or nil, agent = agent or nil, model = model or nil,
  last_prompt = last_prompt or nil, answered = answered or nil, requested_model = requested_model or nil}) do
  redis.call('HSET', session, field, value)
end
return finish(number)
