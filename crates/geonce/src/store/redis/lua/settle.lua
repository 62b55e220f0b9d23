-- Ends leases.
-- ARGV: whether payloads of done events are kept; then seven arguments for each: event, sink, token, end, and for an end
-- 'done' the outcome and (last) the result, for 'retry' when, whether it counts and the cause, for 'dead' (last) the cause. Answers whether work became
-- ready, and '1' or, where the lease is lost, '0' for each.

local known = begin('makes room')
if known then
  return known
end

local keep_payload = ARGV[FIRST] == '1'
local changed = 0

local function released()
  changed = 1
end

local function settle(place)
  local id, sink, token, fate = ARGV[place], ARGV[place + 1], ARGV[place + 2], ARGV[place + 3]
  local event = find(id)
  local work = event and event.work[sink]
  if not work or work.state ~= 'l' or work.token ~= token then
    return '0'
  end
  local queue = ':due:' .. sink
  work.token = '0'
  if fate == 'retry' then
    work.state, work.attempts, work.cause = 'r', work.attempts + tonumber(ARGV[place + 5]), ARGV[place + 6]
    write_work(id, sink, work)
    later('ZADD', queue, int(tonumber(ARGV[place + 4]) + shift), id)
    unlease(event)
    changed = 1
    return '1'
  end
  local write
  local writes = { leave(event, sink, released) }
  if fate == 'done' then
    event.work[sink] = nil
    follow(event, sink, ARGV[place + 4], writes, released)
    write = resolve(event, ARGV[place + 4], keep_payload, ARGV[place + 6])
    redis.call('HDEL', P .. ':event:' .. id, 'work:' .. sink, 'holder:' .. sink)
  else
    work.state, work.cause = 'd', ARGV[place + 6]
    write = resolve(event, nil, keep_payload)
    write_work(id, sink, work)
  end
  later('ZREM', queue, id)
  unlease(event)
  for _, write_more in ipairs(writes) do
    write_more()
  end
  write()
  return '1'
end

local answers = {}
for place = FIRST + 1, #ARGV, 7 do
  answers[#answers + 1] = attempt(settle, place)
end
table.insert(answers, 1, finish() or tostring(changed))
return answer(answers)
