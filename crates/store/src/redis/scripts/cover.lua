-- Summaries. Each is in the hash at the place that it ends at, with its time at `PLACE:at`, the size of the context up to
-- there at `PLACE:covers`, and if known its author at `PLACE:writer` and the measured size of the context's opening at
-- `PLACE:opening`.

local function lay_summary(after, summary, at, covers, details, writer, opening)
  redis.call('HSET', compactions, after, summary, after .. ':at', at, after .. ':covers', covers)
  -- What details add to that, in the session and behind the size that it belongs to. An older client, which knows of no
  -- details, would take a further field of the summary for another summary, and may write one of another size.
  redis.call('HSET', session, 'details:' .. after, covers .. ' ' .. details)
  for field, value in pairs({[':writer'] = writer, [':opening'] = opening}) do
    if value == '' then
      redis.call('HDEL', compactions, after .. field)
    else
      redis.call('HSET', compactions, after .. field, string.sub(value, 2))
    end
  end
end

-- Returns the place of the newest summary, 0 without one, and the size of the context's opening under it: as measured, or
-- the length of the summary in characters (each has one byte that does not continue another).
local function newest_summary()
  local newest = 0
  for _, field in ipairs(redis.call('HKEYS', compactions)) do
    newest = math.max(newest, tonumber(field) or 0)
  end
  local place = text(newest)
  local summary, opening = unpack(redis.call('HMGET', compactions, place, place .. ':opening'))
  if not opening then
    local _, characters = string.gsub(summary or '', '[^\128-\191]', '')
    opening = text(characters)
  end
  return place, opening
end

-- Notes in the session how much its newest summary covers. With another one the model will have something else before it.
local function note_covered()
  local place, opening = newest_summary()
  local covers = redis.call('HGET', compactions, place .. ':covers')
  redis.call('HSET', session, 'covered', covers or '0', 'opening', opening, 'context_tokens', '',
    'covered_details', redis.call('HGET', session, 'details:' .. place) or '')
end
