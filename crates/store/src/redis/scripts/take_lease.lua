-- Gives out a lease unless somebody has one. Answers: done; theirs, and who has it; absent.
local asking, lasts, instead_of = take(), take(), take_optional()
local may_be_replaced = last_lease == lease or last_lease == instead_of
if holder and not may_be_replaced and tonumber(ends_at) >= now() then return {'theirs', holder} end
redis.call('HSET', session, 'lease', lease)
lend(asking, lasts)
return {'done'}
