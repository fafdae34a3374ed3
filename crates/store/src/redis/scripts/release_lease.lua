-- Gives a lease back; one that is not the session's any more is let be. Answers: done; absent.
if last_lease == lease then redis.call('HDEL', leases, session_number) end
return {'done'}
