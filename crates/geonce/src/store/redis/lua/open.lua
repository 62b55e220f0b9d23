-- Makes the store where there is none, and tells which it is.
-- ARGV: prefix, schema, id of a new store or ''. Answers schema and id; nil if there is no store.

local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then
  if ARGV[3] == '' then
    return nil
  end
  redis.call('HSET', KEYS[1], 'schema', ARGV[2], 'store', ARGV[3], 'token', '0')
elseif kind ~= 'hash' then
  return { '', '' }
end
local meta = redis.call('HMGET', KEYS[1], 'schema', 'store')
return { meta[1] or '', meta[2] or '' }
