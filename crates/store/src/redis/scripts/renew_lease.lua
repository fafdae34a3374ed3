-- Makes a lease last so long from now, also if it has ended. Answers: done; lost, where it is not the session's any more;
-- absent.
if not holder or last_lease ~= lease then return {'lost'} end
lend(holder, take())
return {'done'}
