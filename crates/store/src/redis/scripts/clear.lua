-- Removes the events and summaries of the session, and what was counted over them. Answers: done; absent.
if not is_there(session) then return {'absent'} end
if remembered() then return {'done'} end
-- The events are counted in the revision, which never falls.
redis.call('HINCRBY', session, 'changes', text((redis.call('HGET', session, 'last_seq') or 0) + 1))
redis.call('HDEL', session, 'last_seq', 'largest', 'messages', 'open_message', 'preview', 'agent', 'model', 'completed',
  'told', 'details', 'covered', 'covered_details', 'opening', 'context_tokens', 'last_prompt', 'answered', 'requested_model')
for _, field in ipairs(redis.call('HKEYS', compactions)) do redis.call('HDEL', session, 'details:' .. field) end
remember(redis.call('HINCRBY', session, 'generation', 1))
redis.call('UNLINK', events, compactions, prompts)
return finish()
