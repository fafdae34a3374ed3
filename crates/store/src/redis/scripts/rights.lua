-- Says whether the user of the connection may run all that is run to change a store. Answers: done; denied, a command that
-- is not allowed. What a script has done is not taken back when one of its commands is refused, and nothing is done when it
-- is refused for its keys: so commands are asked for before anything else, and keys need not be. It is given one key, that
-- of the project: from whoever has not said who they are, a server takes nothing longer.
for command in string.gmatch([[
  COPY EXEC EXISTS HDEL HGET HGETALL HINCRBY HKEYS HMGET HSET MULTI RENAME TIME UNLINK XADD XDEL XSETID ZADD
  ZRANGEBYLEX ZRANGEBYSCORE ZREM ZREMRANGEBYSCORE ZSCORE
]], '%u+') do
  -- Neither a server that cannot say (before 7.0) nor one that has no such command denies it.
  local is_said, is_allowed = pcall(redis.acl_check_cmd, command, KEYS[1], KEYS[1])
  if is_said and not is_allowed then return {'denied', command} end
end
return {'done'}
