-- Removes the events and summaries of the session, and what was counted over them. Answers: done; absent.
if not is_there(session) then return {'absent'} end
redis.call('HDEL', session, 'last_seq', 'largest', 'messages', 'open_message', 'preview', 'agent', 'model', 'completed',
  'told', 'covered', 'opening', 'context_tokens', 'last_prompt', 'answered', 'requested_model')
redis.call('HINCRBY', session, 'generation', 1)
redis.call('UNLINK', events, compactions, prompts)
return finish()
