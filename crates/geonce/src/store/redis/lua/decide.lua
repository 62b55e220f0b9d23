-- Replays or purges dead events.
-- ARGV: 'replay' or 'purge'; then event and time of death of each, as they were when they were chosen. Answers whether
-- work became ready, and '1' for each that was changed.

local known = begin('makes room')
if known then
  return known
end

local function decide(id, died)
  local event = find(id)
  if not event or event.state ~= 'dead' or event.settled ~= died then
    return '0'
  end
  if ARGV[FIRST] == 'purge' then
    forget(event)
    return '1'
  end
  return revive(event, read_cause(event.cause), now) and '1' or '0'
end

local answers = {}
for place = FIRST + 1, #ARGV, 2 do
  answers[#answers + 1] = attempt(decide, ARGV[place], ARGV[place + 1])
end
table.insert(answers, 1, finish() or '1')
return answer(answers)
