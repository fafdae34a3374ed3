-- Adds to the token totals of the session. Answers: done; absent.
if not is_there(session) then return {'absent'} end
add('tokens_in', take())
add('tokens_out', take())
return finish()
