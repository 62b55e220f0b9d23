-- The books, at one moment.
-- Answers how many events are leased, when the one that has waited longest was received, and source and counts of each.

local refused = begin()
if refused then
  return refused
end

local oldest = redis.call('ZRANGE', P .. ':open', 0, 0)[1]
local received = oldest and redis.call('HGET', P .. ':event:' .. oldest, 'received') or ''
local books = { redis.call('SCARD', P .. ':leased'), received }
for _, source in ipairs(redis.call('SMEMBERS', P .. ':sources')) do
  books[#books + 1] = { source, redis.call('HGETALL', P .. ':count:' .. source) }
end
return books
