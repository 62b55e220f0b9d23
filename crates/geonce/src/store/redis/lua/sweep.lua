-- Forgets done events whose window is over and dead ones whose retention is, and removes places that are over.
-- ARGV: at most so many events, and as many places; window and retention in milliseconds. Answers what went wrong, how many
-- were forgotten, how many purged, whether there are more, and how many places were removed.

local known = begin('makes room')
if known then
  return known
end

local left = tonumber(ARGV[FIRST])
local done_before, dead_before = int(now - tonumber(ARGV[FIRST + 1])), int(now - tonumber(ARGV[FIRST + 2]))
local numbers, wrong = {}, ''

local function remove(id, index)
  local event = find(id)
  if event then
    forget(event)
  else
    redis.call('ZREM', index, id)
  end
  return 1
end

for _, what in ipairs({ { P .. ':done', done_before }, { P .. ':died', dead_before } }) do
  local gone = 0
  -- Damaged records stay where they are; those behind them have their turn all the same.
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', what[1], '-inf', what[2], 'LIMIT', 0, left)) do
    local removed = attempt(remove, id, what[1])
    if removed == 1 then
      gone = gone + 1
    else
      wrong = removed
      redis.call('ZADD', what[1], int(now), id)
    end
  end
  left = left - gone
  numbers[#numbers + 1] = tostring(gone)
end
local counted = finish()

-- An event that came before the end of a place, and still waits, is compared with it.
local oldest = redis.call('ZRANGE', P .. ':open', 0, 0)[1]
local came = oldest and tonumber(redis.call('HGET', P .. ':event:' .. oldest, 'received') or '')
local over = int(math.min(now, came or now))
local places = redis.call('ZRANGEBYSCORE', P .. ':places', '-inf', over, 'LIMIT', 0, tonumber(ARGV[FIRST]))
for _, id in ipairs(places) do
  remove_place(id, redis.call('HGET', P .. ':place', id))
end

local more = redis.call('ZCOUNT', P .. ':done', '-inf', done_before) + redis.call('ZCOUNT', P .. ':died', '-inf', dead_before)
  + redis.call('ZCOUNT', P .. ':places', '-inf', over)
return answer({ counted or string.sub(wrong, 2), numbers[1], numbers[2], more > 0 and '1' or '0', tostring(#places) })
