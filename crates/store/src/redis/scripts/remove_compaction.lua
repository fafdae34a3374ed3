-- Takes the summary off that ends at a place. Answers: done; none, where there was no such summary; absent.
if not is_there(session) then return {'absent'} end
if remembered() then return {'done'} end
local after = take()
if redis.call('HDEL', compactions, after, after .. ':at', after .. ':covers', after .. ':writer',
  after .. ':opening') == 0 then return {'none'} end
redis.call('HDEL', session, 'details:' .. after)
note_covered()
redis.call('HINCRBY', session, 'changes', 1)
remember()
return finish()
