-- Every session is upgraded. Answers: done.
redis.call('HDEL', project, 'upgrading')
return {'done'}
