-- Totals of a session.

-- Adds two whole numbers. They are exact up to here; no total is larger.
local function sum(one, other)
  return math.min((one or 0) + other, 9007199254740992)
end
