#!lua
-- One atomic step: every guard holds and all commands are run, or nothing is.
-- KEYS: all keys of the step, those that are guarded first.
-- ARGV: number of guarded keys; number of guards; whether replies are wanted (1 or 0); four words
-- for each guard (number of its key, field, comparison, value); then for each command: how many
-- words follow its name and key, its name, the number of its key, those words.
-- Answer: 1, or {1, reply, reply, ...}; else {0, fields and values of each guarded key}.
local guarded, guards = tonumber(ARGV[1]), tonumber(ARGV[2])
local answers = ARGV[3] == '1'
local at = 4

local function holds(key, field, comparison, value)
  local found = redis.call('HGET', key, field)
  if comparison == '=' then
    return found == value
  elseif comparison == '!' then
    return not found
  elseif comparison == '<=' then
    return found and tonumber(found) <= tonumber(value)
  end
  return tonumber(found or '0') < tonumber(value)
end

for _ = 1, guards do
  if not holds(KEYS[tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]) then
    local answer = {0}
    for number = 1, guarded do
      answer[number + 1] = redis.call('HGETALL', KEYS[number])
    end
    return answer
  end
  at = at + 4
end

local answer = {1}
while ARGV[at] do
  local words = tonumber(ARGV[at])
  local reply = redis.call(
    ARGV[at + 1], KEYS[tonumber(ARGV[at + 2])], unpack(ARGV, at + 3, at + 2 + words)
  )
  if answers then
    answer[#answer + 1] = reply
  end
  at = at + 3 + words
end
return answers and answer or 1
