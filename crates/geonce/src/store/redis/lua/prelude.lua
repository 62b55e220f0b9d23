-- What every script begins with: who asks, what time it is, records, work, counts.
--
-- KEYS[1] is the key 'meta', which says in which slot all keys of the store are.
-- ARGV: prefix, store id, lane, number of the call, clock, time of the caller; then what the script asks for.
-- A script never fails after its first write: what is read is checked before, and each event is attempted by itself.

local P, LANE, CALL = ARGV[1], ARGV[3], ARGV[4]
local FIRST = 7
local FINGERPRINT = 33
local ID = 26

local now, shift = tonumber(ARGV[6]), 0
if ARGV[5] == 'server' then
  local time = redis.call('TIME')
  local given = now
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  shift = now - given
end

local function damaged(what)
  error({ err = 'DAMAGED ' .. what })
end

-- Runs f for one event; what went wrong, after '!', where it failed.
local function attempt(f, ...)
  local ok, answer = pcall(f, ...)
  if ok then
    return answer
  end
  if type(answer) == 'table' then
    answer = answer.err
  end
  return '!' .. tostring(answer)
end

-- A number without fraction or exponent. Most are the time, which is written once.
local int_number, int_text
local function int(number)
  if number ~= int_number then
    int_number, int_text = number, string.format('%.0f', number)
  end
  return int_text
end

-- Whether this is the store that was opened, and all of its slot is here: a key that never exists is looked for
-- elsewhere while the slot is being moved, and that is the time to fail.
-- A script that helps to make room goes on where there is none left: Redis refuses for lack of memory only until a script
-- has written something, and removing is never refused.
local function begin(makes_room)
  local meta = redis.call('HMGET', KEYS[1], 'store', 'schema')
  if meta[1] ~= ARGV[2] or meta[2] ~= SCHEMA then
    return redis.error_reply('REPLACED this is not the store that was opened')
  end
  redis.call(makes_room and 'DEL' or 'EXISTS', P .. ':never')
  if LANE ~= '' then
    local last = redis.call('GET', P .. ':answer:' .. LANE)
    if last and string.sub(last, 1, #CALL) == CALL then
      return cmsgpack.unpack(string.sub(last, #CALL + 1))
    end
  end
  return nil
end

-- Keeps the answer for a caller that may not hear it. Each lane has one caller, which asks one thing at a time.
local function answer(what)
  redis.pcall('SET', P .. ':answer:' .. LANE, CALL .. cmsgpack.pack(what), 'PX', 60000)
  return what
end

local counts = {}

local function count(source, name, by)
  local names = counts[source]
  if not names then
    names = {}
    counts[source] = names
  end
  names[name] = (names[name] or 0) + by
end

local function write_counts()
  for source, names in pairs(counts) do
    redis.call('SADD', P .. ':sources', source)
    for name, by in pairs(names) do
      if by ~= 0 then
        redis.call('HINCRBY', P .. ':count:' .. source, name, int(by))
      end
    end
  end
end

-- Indexes are changed for many events at once: most of what a script costs is the number of its commands. What is decided
-- is decided by records and claims, which are written at once.
local pending, order = {}, {}

local function later(command, index, ...)
  local name = command .. index
  local words = pending[name]
  if not words then
    words = { command, P .. index }
    pending[name] = words
    order[#order + 1] = name
  end
  for i = 1, select('#', ...) do
    words[#words + 1] = (select(i, ...))
  end
end

local function write_indexes()
  local wrong
  for _, name in ipairs(order) do
    local answered = redis.pcall(unpack(pending[name]))
    if type(answered) == 'table' and answered.err then
      wrong = wrong or '!' .. answered.err
    end
  end
  pending, order = {}, {}
  return wrong
end

-- What is left to write at the end; what went wrong with it, after '!'.
local function finish()
  local wrong = write_indexes()
  return wrong or attempt(write_counts)
end

local STATES = { open = true, done = true, dead = true }

-- A cause is a JSON array of class, code, pointer, message.
local function read_cause(text)
  local ok, cause = pcall(cjson.decode, text)
  if not ok or type(cause) ~= 'table' or type(cause[1]) ~= 'string' or type(cause[2]) ~= 'string' then
    damaged('a cause cannot be read')
  end
  return { class = cause[1], code = cause[2], text = text }
end

local function is_transient(cause)
  return cause.class == 'resource' or cause.class == 'unavailable'
end

-- What is left to do at a sink: ready, leased, held or dead; token of the lease; attempts; lapses; last cause.
local function read_work(text)
  local state, token, attempts, lapses, cause = string.match(text, '^([rlhd]) (%d+) (%d+) (%d+) ?(.*)$')
  if not state then
    return nil
  end
  return { state = state, token = token, attempts = tonumber(attempts), lapses = tonumber(lapses), cause = cause }
end

-- With the name of who holds it, where it was just leased; otherwise that does not count.
local function write_work(id, sink, work, holder)
  local text = work.state .. ' ' .. work.token .. ' ' .. int(work.attempts) .. ' ' .. int(work.lapses) .. ' ' .. work.cause
  if holder then
    redis.call('HSET', P .. ':event:' .. id, 'work:' .. sink, text, 'holder:' .. sink, holder)
  else
    redis.call('HSET', P .. ':event:' .. id, 'work:' .. sink, text)
  end
end

-- The record of an event, checked; nil if there is none.
local function find(id)
  local flat = redis.call('HGETALL', P .. ':event:' .. id)
  if #flat == 0 then
    return nil
  end
  local event = { id = id, work = {}, after = {} }
  for i = 1, #flat, 2 do
    local name = flat[i]
    if string.sub(name, 1, 5) == 'work:' then
      local work = read_work(flat[i + 1])
      if not work then
        damaged('the work of ' .. id .. ' cannot be read')
      end
      event.work[string.sub(name, 6)] = work
    elseif string.sub(name, 1, 6) == 'after:' then
      event.after[string.sub(name, 7)] = flat[i + 1]
    else
      event[name] = flat[i + 1]
    end
  end
  local keys = event.keys
  if not (event.source and STATES[event.state] and tonumber(event.received) and keys and #keys > 0
      and #keys % FINGERPRINT == 0 and event.content and #event.content == 32 and event.form) then
    damaged('the record of evt_' .. id .. ' is not complete')
  end
  if event.state == 'dead' and not event.cause then
    damaged('evt_' .. id .. ' is dead without a cause')
  end
  return event
end

local function is_leased(event)
  for _, work in pairs(event.work) do
    if work.state == 'l' then
      return true
    end
  end
  return false
end

-- After a lease has ended: the event is leased as long as one of its leases is.
local function unlease(event)
  if not is_leased(event) then
    later('SREM', ':leased', event.id)
  end
end

-- The cause that stands for an event: of its dead work, in the order of sinks, one that time does not mend comes first.
local function dead_cause(event)
  local found
  local sinks = {}
  for sink in pairs(event.work) do
    sinks[#sinks + 1] = sink
  end
  table.sort(sinks)
  for _, sink in ipairs(sinks) do
    local work = event.work[sink]
    if work.state == 'd' then
      local cause = read_cause(work.cause)
      if not found or (is_transient(found) and not is_transient(cause)) then
        found = cause
      end
    end
  end
  return found
end

-- Makes of an open event what its work makes it, after one sink was served or is dead. Reading comes before writing:
-- gives back what is to be written. Of several results the first is kept.
local function resolve(event, outcome, keep_payload, result)
  if event.state ~= 'open' then
    damaged('there is leased work for evt_' .. event.id .. ', which is settled')
  end
  local merged = event.outcome
  if outcome and merged ~= 'applied' and (not merged or outcome == 'applied') then
    merged = outcome
  end
  local open = false
  for sink, work in pairs(event.work) do
    -- What waits for another sink goes where that goes.
    open = open or (work.state ~= 'd' and not event.after[sink])
  end
  local cause = not open and dead_cause(event) or nil
  if not open and not cause and not merged then
    damaged('evt_' .. event.id .. ' has neither work nor outcome')
  end
  local id, record = event.id, P .. ':event:' .. event.id
  return function()
    if result and result ~= '' and not event.result then
      redis.call('HSET', record, 'result', result)
    end
    if merged and (open or cause) then
      redis.call('HSET', record, 'outcome', merged)
    end
    if open then
      return
    end
    count(event.source, 'waiting', -1)
    later('ZREM', ':open', id)
    if cause then
      redis.call('HSET', record, 'state', 'dead', 'settled', int(now), 'cause', cause.text)
      later('ZADD', ':dead', 0, id)
      later('ZADD', ':died', int(now), id)
      count(event.source, 'dead', 1)
      count(event.source, 'dead:' .. cause.code, 1)
      return
    end
    redis.call('HSET', record, 'state', 'done', 'settled', int(now), 'outcome', merged)
    later('ZADD', ':done', int(now), id)
    if not keep_payload then
      redis.call('DEL', P .. ':body:' .. id)
      redis.call('HDEL', record, 'body')
    end
    count(event.source, merged, 1)
    count(event.source, 'done', 1)
  end
end

-- Lines of entities: at a sink one event of an entity has its turn, ready or leased, and the others are held, in the order
-- of their ranks. Who has it is in the hash 'turn:SINK', who is held in the set 'line:SINK:ENTITY'. Work in a line is put
-- into and taken out of its queue at once, not later: it may come and go in one script.

-- Whether bytes go before others. Lua would compare them as words of some language.
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

local function line_of(sink, entity)
  return P .. ':line:' .. sink .. ':' .. entity
end

-- Lets an event into a line: whether it has its turn, and what is to be written for that. What has its turn gives way to a
-- lower rank, unless it was ever leased.
local function enter(id, entity, rank, sink, due)
  local turn, line, queue = P .. ':turn:' .. sink, line_of(sink, entity), P .. ':due:' .. sink
  local other = redis.call('HGET', turn, entity)
  if not other then
    return true, function()
      redis.call('HSET', turn, entity, id)
      redis.call('ZADD', queue, int(due), id)
    end
  end
  local ok, record = pcall(find, other)
  local work = ok and record and record.work[sink]
  if not (work and work.state == 'r' and work.cause == '' and record.rank and before(rank .. id, record.rank .. other)) then
    return false, function()
      redis.call('ZADD', line, 0, rank .. id)
    end
  end
  return true, function()
    work.state = 'h'
    write_work(other, sink, work)
    redis.call('ZREM', queue, other)
    redis.call('ZADD', line, 0, record.rank .. other)
    redis.call('HSET', turn, entity, id)
    redis.call('ZADD', queue, int(due), id)
  end
end

-- Events of a line that are looked at, should some of them be damaged.
local LOOKED_AT = 32

-- Gives the turn to the next of a line, once an event has left: what is to be written. Whether there is a next one is told to
-- `released`.
local function leave(event, sink, released)
  local turn, entity = P .. ':turn:' .. sink, event.entity
  if not entity or redis.call('HGET', turn, entity) ~= event.id then
    return function() end
  end
  local line = line_of(sink, entity)
  for _, member in ipairs(redis.call('ZRANGEBYLEX', line, '-', '+', 'LIMIT', 0, LOOKED_AT)) do
    local id = string.sub(member, -ID)
    local ok, record = pcall(find, id)
    local work = ok and record and record.work[sink]
    if work and work.state == 'h' and not record.after[sink] then
      return function()
        work.state = 'r'
        write_work(id, sink, work)
        redis.call('ZREM', line, member)
        redis.call('HSET', turn, entity, id)
        redis.call('ZADD', P .. ':due:' .. sink, int(now), id)
        released()
      end
    end
  end
  return function()
    redis.call('HDEL', turn, entity)
  end
end

-- Follows what a served sink means to the rest of its event, whose work in memory is changed: what waits for it goes or,
-- where there is no row to tell of, is served with the same outcome. Adds to `writes` what is to be written.
local function follow(event, served, outcome, writes, released)
  local waiting = {}
  for sink, after in pairs(event.after) do
    if after == served then
      waiting[#waiting + 1] = sink
    end
  end
  local record = P .. ':event:' .. event.id
  for _, sink in ipairs(waiting) do
    local work = event.work[sink]
    event.after[sink] = nil
    if outcome ~= 'applied' then
      event.work[sink] = nil
      writes[#writes + 1] = function()
        redis.call('HDEL', record, 'work:' .. sink, 'after:' .. sink, 'holder:' .. sink)
      end
      follow(event, sink, outcome, writes, released)
    elseif work then
      local has_turn, write = true, nil
      if event.entity then
        has_turn, write = enter(event.id, event.entity, event.rank, sink, now)
      end
      work.state = has_turn and 'r' or 'h'
      writes[#writes + 1] = function()
        redis.call('HDEL', record, 'after:' .. sink)
        write_work(event.id, sink, work)
        if write then
          write()
        else
          later('ZADD', ':due:' .. sink, int(now), event.id)
        end
        released()
      end
    end
  end
end

-- Makes the dead work of a dead event ready at `due`; false if it has none. Its cause was read before.
local function revive(event, cause, due)
  -- The event may have died in this very script.
  local wrong = write_indexes()
  if wrong then
    damaged(string.sub(wrong, 2))
  end
  local revived = false
  for sink, work in pairs(event.work) do
    if work.state == 'd' then
      local has_turn, write = true, nil
      if event.entity then
        has_turn, write = enter(event.id, event.entity, event.rank, sink, due)
      end
      local state = has_turn and 'r' or 'h'
      write_work(event.id, sink, { state = state, token = '0', attempts = 0, lapses = 0, cause = work.cause })
      if write then
        write()
      else
        later('ZADD', ':due:' .. sink, int(due), event.id)
      end
      revived = true
    end
  end
  if not revived then
    return false
  end
  redis.call('HSET', P .. ':event:' .. event.id, 'state', 'open')
  redis.call('HDEL', P .. ':event:' .. event.id, 'settled', 'cause')
  later('ZREM', ':dead', event.id)
  later('ZREM', ':died', event.id)
  later('ZADD', ':open', 0, event.id)
  count(event.source, 'dead', -1)
  count(event.source, 'dead:' .. cause.code, -1)
  count(event.source, 'waiting', 1)
  return true
end

-- Removes the record of an event that is done or dead, and its claims.
local function forget(event)
  local cause = event.state == 'dead' and read_cause(event.cause) or nil
  local id, keys = event.id, 0
  for i = 1, #event.keys, FINGERPRINT do
    local claim = P .. ':key:' .. string.sub(event.keys, i + 1, i + 16)
    if redis.call('GET', claim) == id then
      redis.call('DEL', claim)
    end
    keys = keys + 1
  end
  redis.call('DEL', P .. ':event:' .. id, P .. ':body:' .. id)
  for _, index in ipairs({ ':all', ':done', ':dead', ':died' }) do
    later('ZREM', index, id)
  end
  count(event.source, 'keys', -keys)
  if cause then
    count(event.source, 'dead', -1)
    count(event.source, 'dead:' .. cause.code, -1)
    count(event.source, 'purged', 1)
  else
    count(event.source, 'done', -1)
  end
end

-- Places among what may be near: the hash 'place' has 'p', scope (16 bytes), cell (8) and body of each event, or 'd' and what
-- was decided about it; 'cell:SCOPE CELL' who is in a cell, and 'places' all, both by when they are over.
local PLACE_HEAD = 25

local function remove_place(id, kept)
  if kept and string.sub(kept, 1, 1) == 'p' then
    redis.call('ZREM', P .. ':cell:' .. string.sub(kept, 2, PLACE_HEAD), id)
  end
  redis.call('HDEL', P .. ':place', id)
  redis.call('ZREM', P .. ':places', id)
end
