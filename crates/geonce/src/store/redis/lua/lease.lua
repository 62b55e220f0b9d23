-- Hands out work that is due, oldest first.
-- ARGV: sink, events, bytes, milliseconds, how many events may be leased together that have lapsed once, whether payloads
-- of done events are kept, the one event that is wanted or '', who asks. Answers events that could not be handed out, then twelve values for each lease.

local known = begin('makes room')
local sink, limit, bytes_max, duration = ARGV[FIRST], tonumber(ARGV[FIRST + 1]), tonumber(ARGV[FIRST + 2]), tonumber(ARGV[FIRST + 3])
local queue = P .. ':due:' .. sink

local function handed(event, work, payload)
  return {
    event.id, work.token, event.source, event.keys, event.content, event.received, int(work.attempts), int(work.lapses),
    event.form, event.crs or '', payload, event.origin or '',
  }
end

if known then
  -- The answer was lost: the same leases again, as far as they are still held.
  if known.err then
    return known
  end
  local leases = { known[1] }
  for i = 2, #known, 2 do
    local event = find(known[i])
    local work = event and event.work[sink]
    local payload = work and work.state == 'l' and work.token == known[i + 1] and redis.call('GET', P .. ':body:' .. known[i])
    if payload then
      leases[#leases + 1] = handed(event, work, payload)
    end
  end
  return leases
end

local token
local function next_token()
  if not token then
    -- Tokens grow even where a failover has lost the last of them.
    local last = tonumber(redis.call('HGET', KEYS[1], 'token') or '0') or 0
    token = int(math.max(last + 1, ARGV[5] == 'server' and now * 1000 or 0))
    redis.call('HSET', KEYS[1], 'token', token)
  end
  return token
end

-- Takes damaged work out of the queue, visibly.
local function bury(id, what)
  redis.call('ZREM', queue, id)
  local event = find(id)
  local work = event and event.work[sink]
  if not work or work.state == 'd' then
    return
  end
  work.state, work.token = 'd', '0'
  work.cause = cjson.encode({ 'internal', 'damaged', '', what })
  local write = resolve(event, nil, ARGV[FIRST + 5] == '1')
  local give_turn = leave(event, sink, function() end)
  write_work(id, sink, work)
  give_turn()
  unlease(event)
  write()
end

local leases, grant, buried, bytes, company = {}, {}, {}, 0, nil

-- Leases one event; false if no more are to be leased.
local function lease(id)
  local event = find(id)
  if not event then
    damaged('there is work for evt_' .. id .. ', but no record')
  end
  local work = event.work[sink]
  if not work or work.state == 'd' or work.state == 'h' then
    damaged('evt_' .. id .. ' waits for a sink that it has no work for')
  end
  local lapsed = work.state == 'l'
  local lapses = work.lapses + (lapsed and 1 or 0)
  local together = lapses == 0 and limit or (lapses == 1 and tonumber(ARGV[FIRST + 4]) or 1)
  if #leases > 0 and (company ~= lapses or #leases >= together) then
    return false
  end
  local size = redis.call('STRLEN', P .. ':body:' .. id)
  if #leases > 0 and bytes + size > bytes_max then
    return false
  end
  local payload = redis.call('GET', P .. ':body:' .. id)
  if not payload then
    damaged('the payload of evt_' .. id .. ' is gone')
  end
  work.state, work.token, work.lapses = 'l', next_token(), lapses
  write_work(id, sink, work, ARGV[FIRST + 7])
  later('ZADD', ':due:' .. sink, int(now + duration), id)
  if not lapsed then
    later('SADD', ':leased', id)
  end
  company, bytes = lapses, bytes + size
  leases[#leases + 1] = handed(event, work, payload)
  grant[#grant + 1] = id
  grant[#grant + 1] = work.token
  return true
end

local function due()
  local wanted = ARGV[FIRST + 6]
  if wanted == '' then
    return redis.call('ZRANGEBYSCORE', queue, '-inf', int(now), 'LIMIT', 0, limit)
  end
  local score = redis.call('ZSCORE', queue, wanted)
  return score and tonumber(score) <= now and { wanted } or {}
end

for _, id in ipairs(due()) do
  local leased = attempt(lease, id)
  if leased == false then
    break
  end
  if leased ~= true then
    local code, what = string.match(leased, '^!(%u+) (.*)$')
    if code ~= 'DAMAGED' and code ~= 'WRONGTYPE' then
      finish()
      return redis.error_reply(string.sub(leased, 2))
    end
    -- One damaged record must not stop the queue.
    attempt(bury, id, what)
    buried[#buried + 1] = id .. ' ' .. what
  end
end
local wrong = finish()
if wrong then
  return redis.error_reply(string.sub(wrong, 2))
end
table.insert(leases, 1, table.concat(buried, '\n'))
table.insert(grant, 1, leases[1])
answer(grant)
return leases
