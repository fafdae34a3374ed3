-- Answers with the summaries of the session, each behind its place and followed by its time; absent.
if not is_there(session) then return {'absent'} end
return {'done', redis.call('HGETALL', compactions)}
