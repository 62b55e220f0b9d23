-- Reads records.
-- ARGV: 'ids' and ids; or 'before', the name of an index, an id or '', and how many: the latest first; or 'after', the
-- same: the earliest first; and, for an audit, 'audit' at the end. Answers for each its id, its fields, when its work
-- is due and, for an audit, what else there is of it.

local refused = begin()
if refused then
  return refused
end

local ids = {}
local how, index, from, limit = ARGV[FIRST], P .. ':' .. (ARGV[FIRST + 1] or ''), ARGV[FIRST + 2], ARGV[FIRST + 3]
if how == 'ids' then
  for place = FIRST + 1, #ARGV do
    ids[#ids + 1] = ARGV[place]
  end
elseif how == 'before' then
  ids = redis.call('ZREVRANGEBYLEX', index, from == '' and '+' or '(' .. from, '-', 'LIMIT', 0, limit)
else
  ids = redis.call('ZRANGEBYLEX', index, from == '' and '-' or '(' .. from, '+', 'LIMIT', 0, limit)
end

-- For an audit: what is wrong with the places of an ordered event in its lines.
local function line_problems(id, fields)
  local named = {}
  for i = 1, #fields, 2 do
    named[fields[i]] = fields[i + 1]
  end
  local problems = {}
  for name, text in pairs(named) do
    local sink = string.sub(name, 1, 5) == 'work:' and string.sub(name, 6)
    local work = sink and read_work(text)
    local after = work and named['after:' .. sink]
    if after and (work.state ~= 'h' or not named['work:' .. after]) then
      problems[#problems + 1] = 'is held for a sink that is served'
    elseif work and named.entity and named.rank then
      local turn = redis.call('HGET', P .. ':turn:' .. sink, named.entity)
      local held = redis.call('ZSCORE', line_of(sink, named.entity), named.rank .. id)
      local is_held = work.state == 'h' and not after
      if (held and true or false) ~= is_held or (turn == id) ~= (work.state == 'r' or work.state == 'l') then
        problems[#problems + 1] = 'is not where it belongs in the line of its entity'
      elseif is_held and not turn then
        problems[#problems + 1] = 'is held, and nothing is there to wait for'
      end
    elseif work and work.state == 'h' and not after then
      problems[#problems + 1] = 'is held, and nothing is there to wait for'
    end
  end
  return problems
end

-- For an audit: the holders of its keys, the indexes that it is in, its leases, the size of its payload, its lines.
local function surroundings(id, fields)
  local found = {}
  for i = 1, #fields, 2 do
    if fields[i] == 'keys' then
      for j = 1, #fields[i + 1], FINGERPRINT do
        found[#found + 1] = redis.call('GET', P .. ':key:' .. string.sub(fields[i + 1], j + 1, j + 16)) or ''
      end
    end
  end
  local places = {}
  for _, name in ipairs({ 'open', 'done', 'dead', 'died' }) do
    if redis.call('ZSCORE', P .. ':' .. name, id) then
      places[#places + 1] = name
    end
  end
  local body = redis.call('EXISTS', P .. ':body:' .. id)
  local leased = tostring(redis.call('SISMEMBER', P .. ':leased', id))
  return { found, table.concat(places, ' '), leased, tostring(body), line_problems(id, fields) }
end

local records = {}
for _, id in ipairs(ids) do
  local fields = redis.call('HGETALL', P .. ':event:' .. id)
  local due = {}
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 5) == 'work:' then
      due[#due + 1] = redis.call('ZSCORE', P .. ':due:' .. string.sub(fields[i], 6), id) or ''
    end
  end
  local audit = {}
  if ARGV[#ARGV] == 'audit' then
    audit = surroundings(id, fields)
  end
  records[#records + 1] = { id, fields, due, audit }
end
return records
