-- Gives events their places among what may be near. Asked again, it answers the same: no lane is needed.
-- ARGV: how many neighbours an answer may have, how many bytes of their bodies, and how many bytes all answers; then nine
-- arguments for each event: its id, scope, the cell it is in, the cells it looks at (8 bytes each), until when others are
-- compared with it, when it came, its body, what it claims ('u' unless others are there, 'a' anyway, 'd' decided), and whom
-- it knows (ids) or what was decided.
-- Answers for each 'h', or 'd' and what was decided, or 'n' and id, '1' or '0' for applied or not, and body of each
-- neighbour. Where answers are missing at the end, the rest is to be asked again.

local refused = begin()
if refused then
  return refused
end

local NEIGHBOURS, BYTES, ALL_BYTES = tonumber(ARGV[FIRST]), tonumber(ARGV[FIRST + 1]), tonumber(ARGV[FIRST + 2])
local CELL = 8
local answered = 0

-- '1' for an event that was applied, '0' for one that may still be; nil if nobody is compared with it.
local function standing(id)
  local found = redis.call('HMGET', P .. ':event:' .. id, 'state', 'outcome')
  if found[1] == 'open' then
    return '0'
  end
  return found[1] == 'done' and found[2] == 'applied' and '1' or nil
end

-- Those in the cells that are not known, latest first; whether there may be more.
local function in_cells(id, scope, cells, since, names)
  local known, number = { [id] = true }, #names / ID
  for i = 1, #names, ID do
    known[string.sub(names, i, i + ID - 1)] = true
  end
  local found = {}
  for i = 1, #cells, CELL do
    local key = P .. ':cell:' .. scope .. string.sub(cells, i, i + CELL - 1)
    local members = redis.call('ZREVRANGEBYSCORE', key, '+inf', '(' .. int(since), 'WITHSCORES', 'LIMIT', 0, NEIGHBOURS + number)
    for j = 1, #members, 2 do
      if not known[members[j]] then
        found[#found + 1] = { id = members[j], time = tonumber(members[j + 1]), key = key }
      end
    end
  end
  table.sort(found, function(a, b)
    if a.time ~= b.time then
      return a.time > b.time
    end
    return before(b.id, a.id)
  end)
  return found, #found >= NEIGHBOURS
end

-- The neighbours of a spot. Those with whom nobody is compared lose their places.
local function neighbours(id, scope, cells, since, names)
  local found, more = in_cells(id, scope, cells, since, names)
  local near, bytes = { 'n' }, 0
  for i = 1, math.min(#found, NEIGHBOURS) do
    local other = found[i]
    local kept = redis.call('HGET', P .. ':place', other.id)
    local applied = kept and standing(other.id)
    if not applied then
      remove_place(other.id, kept)
      redis.call('ZREM', other.key, other.id)
    else
      local size = #kept - PLACE_HEAD
      if #near > 1 and bytes + size > BYTES then
        break
      end
      bytes = bytes + size
      near[#near + 1] = { other.id, applied, string.sub(kept, PLACE_HEAD + 1) }
    end
  end
  return near, bytes, more
end

local function place(at)
  local id, scope, home, cells = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local ends, body, claim, words = int(tonumber(ARGV[at + 4]) + shift), ARGV[at + 6], ARGV[at + 7], ARGV[at + 8]
  local kept = redis.call('HGET', P .. ':place', id)
  if kept then
    return string.sub(kept, 1, 1) == 'p' and { 'h' } or { 'd', string.sub(kept, 2) }
  end
  if claim == 'd' then
    redis.call('HSET', P .. ':place', id, 'd' .. words)
    redis.call('ZADD', P .. ':places', ends, id)
    return { 'd', words }
  end
  if claim == 'u' then
    local since = math.min(now, tonumber(ARGV[at + 5]) + shift)
    local near, bytes, more = neighbours(id, scope, cells, since, words)
    answered = answered + bytes
    if #near > 1 then
      return near
    end
    if more then
      return nil
    end
  end
  redis.call('HSET', P .. ':place', id, 'p' .. scope .. home .. body)
  redis.call('ZADD', P .. ':cell:' .. scope .. home, ends, id)
  redis.call('ZADD', P .. ':places', ends, id)
  return { 'h' }
end

local answers = {}
for at = FIRST + 3, #ARGV, 9 do
  local answer = attempt(place, at)
  if not answer then
    break
  end
  answers[#answers + 1] = answer
  if answered > ALL_BYTES then
    break
  end
end
return answers
