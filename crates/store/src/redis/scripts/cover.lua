-- Summaries. Each stands in the hash at the place that it ends at, its time at `PLACE:at`, and at `PLACE:covers` how much
-- there is to tell of the events up to there.

local function lay_summary(after, summary, at, covers)
  redis.call('HSET', compactions, after, summary, after .. ':at', at, after .. ':covers', covers)
end

-- Notes in the session how much its newest summary covers. With another one the model will have something else before it.
local function note_covered()
  local newest = 0
  for _, field in ipairs(redis.call('HKEYS', compactions)) do
    newest = math.max(newest, tonumber(field) or 0)
  end
  local covers = redis.call('HGET', compactions, text(newest) .. ':covers')
  redis.call('HSET', session, 'covered', covers or '0', 'context_tokens', '')
end
