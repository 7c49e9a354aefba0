"""The Lua scripts: operations that must be atomic, and behave the same in all versions of Redis.

Each script has one key, the queue, and is run by `Queue.run`. The string after a script documents
its arguments and its reply.
"""

from __future__ import annotations

LOST, OURS, CANCELLED, TAKEN_OVER = range(4)

BEAT = """
local states = {}
for i = 3, #ARGV do
  local id = ARGV[i]
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
  if not pending then
    states[#states + 1] = 0
  elseif pending[2] ~= ARGV[2] then
    states[#states + 1] = 3
  elseif #redis.call('XRANGE', KEYS[1], id, id) == 0 then
    redis.call('XACK', KEYS[1], ARGV[1], id)
    states[#states + 1] = 2
  else
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'JUSTID')
    states[#states + 1] = 1
  end
end
return states
"""
"""group, consumer, ids → for each id LOST, OURS, CANCELLED or TAKEN_OVER.

Resets the idle time of the entries that are OURS. LOST: no consumer has the entry. CANCELLED: the
entry was deleted. TAKEN_OVER: another consumer has it. XCLAIM alone would take an entry back from a
consumer that has claimed it, and it reports deleted entries only since Redis 7.
"""

CLAIM = """
local claimed = {}
local idle = redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[3], '-', '+', ARGV[4])
for _, pending in ipairs(idle) do
  local entry = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], pending[1])[1]
  if entry then
    claimed[#claimed + 1] = {entry[1], entry[2], pending[2], pending[4]}
  else
    redis.call('XACK', KEYS[1], ARGV[1], pending[1])
  end
end
return claimed
"""
"""group, consumer, ms, most → entries: [id, fields, previous consumer, deliveries].

Claims at most `most` entries that have been idle for `ms`. Acknowledges those that were deleted.
"""

RELEASE = """
local released = 0
local start = '-'
while true do
  local mine = redis.call('XPENDING', KEYS[1], ARGV[1], start, '+', 100, ARGV[2])
  for _, pending in ipairs(mine) do
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, pending[1],
               'IDLE', ARGV[3], 'RETRYCOUNT', pending[4] - 1, 'JUSTID')
    released = released + 1
    start = '(' .. pending[1]
  end
  if #mine < 100 then break end
end
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
return released
"""
"""group, consumer, ms → the number of entries of the consumer.

Sets their idle time to `ms`, so that other consumers can claim them at once. Then removes the
consumer if it has no entries; removing one with entries would lose them.
"""

CLEAN = """
local live = 0
local removed = {}
for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local about = {}
  for i = 1, #row, 2 do about[row[i]] = row[i + 1] end
  if about.pending == 0 and about.idle >= tonumber(ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], about.name)
    removed[#removed + 1] = about.name
  elseif about.idle < tonumber(ARGV[3]) then
    live = live + 1
  end
end
return {live, removed}
"""
"""group, dead, silent → the number of live consumers, and the names of the removed ones.

Removes consumers that have no entries and have been idle for `dead` ms. A consumer is live if it
has been idle for less than `silent` ms.
"""
