-- Times are texts such as 2026-01-31T09:30:00Z, so the greater text is the later time.

local function second_after(time)
  local year, month, day, hour, minute, second =
    string.match(time, '^(%d%d%d%d)%-(%d%d)%-(%d%d)T(%d%d):(%d%d):(%d%d)Z$')
  if not year then return time end
  year, month, day = tonumber(year), tonumber(month), tonumber(day)
  hour, minute, second = tonumber(hour), tonumber(minute), tonumber(second) + 1
  if second > 59 then minute, second = minute + 1, 0 end
  if minute > 59 then hour, minute = hour + 1, 0 end
  if hour > 23 then day, hour = day + 1, 0 end
  local is_leap = year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0)
  local days = {31, is_leap and 29 or 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}
  if day > (days[month] or 31) then month, day = month + 1, 1 end
  if month > 12 then year, month = year + 1, 1 end
  return string.format('%04d-%02d-%02dT%02d:%02d:%02dZ', year, month, day, hour, minute, second)
end

-- Returns the present, or a second after another time if that is not earlier: no clock decides alone.
local function later_than(present, time)
  if not time or present > time then return present end
  return second_after(time)
end
