-- When work for a sink is next due, on the caller's clock; nil if there is none.
-- ARGV: sink.

local refused = begin()
if refused then
  return refused
end

local first = redis.call('ZRANGE', P .. ':due:' .. ARGV[FIRST], 0, 0, 'WITHSCORES')
return first[2] and int(tonumber(first[2]) - shift)
