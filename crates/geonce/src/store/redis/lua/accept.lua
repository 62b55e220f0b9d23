-- Records events, or tells what is known about them.
-- ARGV: whether payloads of done events are kept; how many kinds of refusals there are; source, code and number of each;
-- how many sources have duplicates that were recognised elsewhere; source and number of each; how many events they are
-- of; id and number of each; how many counters of redeliveries there are; source, name and number of each; then fifteen
-- arguments for each event, the last of which names the dead event that it takes the place of, or is ''. Answers whether work
-- became ready, and a verdict for each event.

local known = begin()
if known then
  return known
end

local keep_payload = ARGV[FIRST] == '1'
local place = FIRST + 2
local changed = 0

for _ = 1, tonumber(ARGV[FIRST + 1]) do
  local source, code, by = ARGV[place], ARGV[place + 1], tonumber(ARGV[place + 2])
  count(source, 'received', by)
  count(source, 'refused', by)
  count(source, 'refused:' .. code, by)
  place = place + 3
end

local sources = tonumber(ARGV[place])
place = place + 1
for _ = 1, sources do
  local source, by = ARGV[place], tonumber(ARGV[place + 1])
  count(source, 'received', by)
  count(source, 'duplicate', by)
  place = place + 2
end

local repeated_events = tonumber(ARGV[place])
place = place + 1
for _ = 1, repeated_events do
  local record = P .. ':event:' .. ARGV[place]
  -- It may be forgotten by now. One that is no record is for whoever needs it to report.
  if redis.call('EXISTS', record) == 1 then
    redis.pcall('HINCRBY', record, 'duplicates', ARGV[place + 1])
  end
  place = place + 2
end

local noted = tonumber(ARGV[place])
place = place + 1
for _ = 1, noted do
  count(ARGV[place], ARGV[place + 1], tonumber(ARGV[place + 2]))
  place = place + 3
end

-- Who holds the keys of these events; false for those that nobody holds.
local claims = {}

-- The id that holds a fingerprint's key, and its record. A claim whose event is gone is free.
local function holder(fingerprint, own)
  local key = string.sub(fingerprint, 2, 17)
  local id = claims[key]
  if id == nil then
    id = redis.call('GET', P .. ':key:' .. key)
  end
  if not id then
    return nil
  end
  if id == own then
    return id
  end
  local event = find(id)
  return event and id, event
end

local function has(fingerprints, wanted, from)
  for i = 1, #(fingerprints or ''), FINGERPRINT do
    if string.sub(fingerprints, i + from, i + FINGERPRINT - 1) == string.sub(wanted, 1 + from) then
      return true
    end
  end
  return false
end

-- Whether a known delivery id comes with content that shares no spatial fingerprint with what came first.
local function contradicts(new, event)
  for i = 1, #new.spatial, FINGERPRINT do
    local mine = string.sub(new.spatial, i, i + FINGERPRINT - 1)
    if has(event.spatial, mine, 0) or has(event.keys, mine, 0) then
      return false
    end
  end
  return #new.spatial > 0
end

-- How long after its event a redelivery came, by the bounds of its counters.
local function lag(new, event)
  local millis = new.now - tonumber(event.received)
  for _, seconds in ipairs(LAGS) do
    if millis <= seconds * 1000 then
      return 'lag:' .. int(seconds)
    end
  end
  return 'lag:more'
end

local function count_repeat(new, event)
  redis.call('HINCRBY', P .. ':event:' .. event.id, 'duplicates', 1)
  count(new.source, 'received', 1)
  count(new.source, 'duplicate', 1)
  count(new.source, lag(new, event), 1)
end

-- A duplicate: counted, and where its event died of something that time may mend, revived.
local function repeated(new, event)
  local drift = event.content ~= new.content
  local cause = event.state == 'dead' and read_cause(event.cause) or nil
  count_repeat(new, event)
  if drift then
    count(new.source, 'drift', 1)
  end
  local state, outcome, revived = event.state, '', false
  if cause and is_transient(cause) and revive(event, cause, new.now) then
    count(event.source, 'revived', 1)
    state, revived, changed = 'ready', true, 1
  elseif state == 'open' then
    state = is_leased(event) and 'leased' or 'ready'
  elseif state == 'done' then
    outcome = event.outcome or ''
  end
  return 'd' .. event.id .. (drift and '1' or '0') .. (revived and '1' or '0') .. state .. ' ' .. outcome
end

-- A time in bytes that sort as times do.
local function eight_bytes(time)
  local high = math.floor(time / 4294967296)
  local bytes, rest = '', time - high * 4294967296
  for _ = 1, 4 do
    bytes = string.char(rest % 256) .. bytes
    rest = math.floor(rest / 256)
  end
  rest = high + 2147483648
  for _ = 1, 4 do
    bytes = string.char(rest % 256) .. bytes
    rest = math.floor(rest / 256)
  end
  return bytes
end

-- A new event: its record, payload, claims, work and counts.
local function record(new, keys, cause)
  local id = new.id
  if redis.call('EXISTS', P .. ':event:' .. id) == 1 then
    return
  end
  local code = cause and read_cause(cause).code
  local state = cause and 'dead' or (#new.sinks > 0 and 'open' or 'done')
  local fields = {
    'source', new.source, 'state', state, 'received', int(new.now), 'form', new.form, 'keys', keys, 'content', new.content,
  }
  local function field(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  if new.crs ~= '' then field('crs', new.crs) end
  if new.spatial ~= '' then field('spatial', new.spatial) end
  if new.origin then field('origin', new.origin) end
  if cause then field('cause', cause) end
  if state ~= 'open' then field('settled', int(new.now)) end
  if state == 'done' then field('outcome', 'applied') end
  local has_body = state ~= 'done' or keep_payload
  if has_body then field('body', '1') end
  local rank = new.entity ~= '' and new.version .. eight_bytes(new.now)
  if rank then
    field('entity', new.entity)
    field('rank', rank)
  end
  local enters = {}
  for _, sink in ipairs(new.sinks) do
    local after = new.after[sink]
    if after then
      -- What waits for another sink was not attempted, whatever is wrong with its event.
      field('after:' .. sink, after)
      field('work:' .. sink, 'h 0 0 0 ')
    elseif cause then
      field('work:' .. sink, 'd 0 0 0 ' .. cause)
    elseif rank then
      local has_turn, write = enter(id, new.entity, rank, sink, new.now)
      enters[#enters + 1] = write
      field('work:' .. sink, has_turn and 'r 0 0 0 ' or 'h 0 0 0 ')
    else
      field('work:' .. sink, 'r 0 0 0 ')
    end
  end
  redis.call('HSET', P .. ':event:' .. id, unpack(fields))
  for _, write in ipairs(enters) do
    write()
  end
  local strings, claimed = {}, 0
  if has_body then
    strings = { P .. ':body:' .. id, new.payload }
  end
  for i = 1, #keys, FINGERPRINT do
    local key = string.sub(keys, i + 1, i + 16)
    strings[#strings + 1] = P .. ':key:' .. key
    strings[#strings + 1] = id
    claims[key] = id
    claimed = claimed + 1
  end
  redis.call('MSET', unpack(strings))
  later('ZADD', ':all', 0, id)
  count(new.source, 'received', 1)
  count(new.source, 'keys', claimed)
  if state == 'dead' then
    later('ZADD', ':dead', 0, id)
    later('ZADD', ':died', int(new.now), id)
    count(new.source, 'dead', 1)
    count(new.source, 'dead:' .. code, 1)
  elseif state == 'done' then
    later('ZADD', ':done', int(new.now), id)
    count(new.source, 'applied', 1)
    count(new.source, 'done', 1)
  else
    later('ZADD', ':open', 0, id)
    for _, sink in ipairs(new.sinks) do
      if not rank and not new.after[sink] then
        later('ZADD', ':due:' .. sink, int(new.now), id)
      end
    end
    count(new.source, 'waiting', 1)
    changed = 1
  end
end

-- Same id or key, other content: recorded as dead under a key of its own, once for each content.
local function clash(new, event, name)
  local id, own = holder(new.clash, new.id)
  if id then
    if own then
      count_repeat(new, own)
    end
    return 'c' .. id .. event.id
  end
  local words = ' came under the same id with other content'
  if name == 'collision' then
    words = ' is known by the same key, but not by the same fingerprint'
  end
  record(new, new.clash, '["conflict","' .. name .. '","","evt_' .. event.id .. words .. '"]')
  count(new.source, name, 1)
  return 'c' .. new.id .. event.id
end

local function accept(new)
  for i = 1, #new.keys, FINGERPRINT do
    local fingerprint = string.sub(new.keys, i, i + FINGERPRINT - 1)
    local id, event = holder(fingerprint, new.id)
    if id == new.id then
      return 'a'
    end
    if id then
      if not has(event.keys, fingerprint, 1) then
        return clash(new, event, 'collision')
      end
      if contradicts(new, event) then
        return clash(new, event, 'conflict')
      end
      return repeated(new, event)
    end
  end
  record(new, new.keys, new.cause ~= '' and new.cause or nil)
  return 'a'
end

-- Whether a new event would be taken for its original.
local function shares_key(new, original)
  for i = 1, #original.keys, FINGERPRINT do
    local key = string.sub(original.keys, i + 1, i + 16)
    for _, keys in ipairs({ new.keys, new.clash }) do
      for j = 1, #keys, FINGERPRINT do
        if string.sub(keys, j + 1, j + 16) == key then
          return true
        end
      end
    end
  end
  return false
end

local VERDICTS = { a = 'accepted', d = 'duplicate', c = 'conflict' }

-- Makes a dead event done. What was left to do for it is the new event's, or was done by the one that it repeats.
local function supersede(original, cause, new, verdict)
  local kind = string.sub(verdict, 1, 1)
  local heir = kind == 'a' and new.id or string.sub(verdict, 2, 1 + ID)
  local result = '={"code":' .. cjson.encode(cause.code) .. ',"repaired":"evt_' .. heir .. '","verdict":"' .. VERDICTS[kind] .. '"}'
  local record, gone = P .. ':event:' .. original.id, { 'cause' }
  for sink in pairs(original.work) do
    gone[#gone + 1] = 'work:' .. sink
    gone[#gone + 1] = 'after:' .. sink
    gone[#gone + 1] = 'holder:' .. sink
  end
  if not keep_payload then
    gone[#gone + 1] = 'body'
    redis.call('DEL', P .. ':body:' .. original.id)
  end
  redis.call('HSET', record, 'state', 'done', 'outcome', 'repaired', 'settled', int(new.now), 'result', result)
  redis.call('HDEL', record, unpack(gone))
  later('ZREM', ':dead', original.id)
  later('ZREM', ':died', original.id)
  later('ZADD', ':done', int(new.now), original.id)
  count(original.source, 'dead', -1)
  count(original.source, 'dead:' .. cause.code, -1)
  count(original.source, 'repaired', 1)
  count(original.source, 'done', 1)
end

-- Puts an event in the place of a dead one.
local function repair(new)
  -- The original may have died, or come back, in this very script.
  local wrong = write_indexes()
  if wrong then
    damaged(string.sub(wrong, 2))
  end
  local original = find(new.original)
  if not original then
    return 'u'
  end
  if original.state == 'done' then
    return 'r' .. (original.outcome or '') .. ' ' .. (original.result or '')
  end
  if original.state == 'open' then
    return 'n' .. (is_leased(original) and 'leased' or 'ready')
  end
  if shares_key(new, original) then
    return 's'
  end
  local cause = read_cause(original.cause)
  new.origin = original.id .. string.sub(original.keys, 1, FINGERPRINT)
  local verdict = accept(new)
  supersede(original, cause, new, verdict)
  return 'y' .. verdict
end

local events, wanted = {}, {}
while place <= #ARGV do
  local new = {
    id = ARGV[place],
    now = tonumber(ARGV[place + 1]) + shift,
    source = ARGV[place + 2],
    keys = ARGV[place + 3],
    spatial = ARGV[place + 4],
    content = ARGV[place + 5],
    clash = ARGV[place + 6],
    form = ARGV[place + 7],
    crs = ARGV[place + 8],
    payload = ARGV[place + 9],
    cause = ARGV[place + 10],
    sinks = {},
    after = {},
    entity = ARGV[place + 12],
    version = ARGV[place + 13],
    original = ARGV[place + 14],
  }
  for route in string.gmatch(ARGV[place + 11], '[^\n]+') do
    local sink, after = string.match(route, '^([^\t]+)\t?(.*)$')
    new.sinks[#new.sinks + 1] = sink
    if after ~= '' then
      new.after[sink] = after
    end
  end
  for i = 1, #new.keys, FINGERPRINT do
    wanted[#wanted + 1] = P .. ':key:' .. string.sub(new.keys, i + 1, i + 16)
  end
  events[#events + 1] = new
  place = place + 15
end
for first = 1, #wanted, 1000 do
  local last = math.min(first + 999, #wanted)
  for i, id in ipairs(redis.call('MGET', unpack(wanted, first, last))) do
    claims[string.sub(wanted[first + i - 1], -16)] = id
  end
end
local verdicts = {}
for _, new in ipairs(events) do
  verdicts[#verdicts + 1] = attempt(new.original == '' and accept or repair, new)
end
table.insert(verdicts, 1, finish() or tostring(changed))
return answer(verdicts)
