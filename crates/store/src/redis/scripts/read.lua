-- Reads a page. Answers with lists of entries, as the stream has them, behind a sign that the session is there.
--
-- How large an event is is known only once it is read, but how large one can be is known before: no more are read at
-- once than fit on a page, and none once it is full.
local largest_page, backwards, bound, limit = tonumber(take()), take() == 'before', take(), tonumber(take())
if not is_there(session) then return {'absent'} end
local at_once = math.floor(largest_page / math.max(1, tonumber(redis.call('HGET', session, 'largest') or '0')))
at_once = math.max(1, at_once)
local answer, size, full = {'done'}, 0, false
while limit > 0 and not full do
  local count = text(math.min(limit, at_once))
  local entries
  if backwards then
    entries = redis.call('XREVRANGE', events, bound, '-', 'COUNT', count)
  else
    entries = redis.call('XRANGE', events, bound, '+', 'COUNT', count)
  end
  answer[#answer + 1] = entries
  limit = limit - #entries
  if limit == 0 or #entries < at_once then return answer end
  for _, entry in ipairs(entries) do size = size + #entry[2][4] end
  full = size >= largest_page
  local last = tonumber(string.match(entries[#entries][1], '^%d+'))
  bound = text(backwards and last - 1 or last + 1)
end
return answer
