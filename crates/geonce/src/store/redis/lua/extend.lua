-- Prolongs leases.
-- ARGV: until when; then event, sink and token of each. Answers '1' or, where the lease is lost, '0' for each.

local known = begin('makes room')
if known then
  return known
end

local until_time = int(tonumber(ARGV[FIRST]) + shift)

local function extend(id, sink, token)
  local text = redis.call('HGET', P .. ':event:' .. id, 'work:' .. sink)
  local work = text and read_work(text)
  if not work or work.state ~= 'l' or work.token ~= token then
    return '0'
  end
  redis.call('ZADD', P .. ':due:' .. sink, until_time, id)
  return '1'
end

local answers = { '' }
for place = FIRST + 1, #ARGV, 3 do
  answers[#answers + 1] = attempt(extend, ARGV[place], ARGV[place + 1], ARGV[place + 2])
end
return answer(answers)
