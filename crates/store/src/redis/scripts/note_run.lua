-- Notes a run of the session, or takes the note off. Answers: done; absent.
local session_number, run = take(), take_optional()
if not is_there(session) then return {'absent'} end
if run then
  redis.call('HSET', runs, session_number, run)
else
  redis.call('HDEL', runs, session_number)
end
return finish()
