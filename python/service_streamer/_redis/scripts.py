"""Lua scripts: what must not be torn apart, the same on every version of Redis.

Each has one key, the queue. `Connection.execute("EVAL", script, 1, queue, *arguments)` runs it.
"""

from __future__ import annotations

LOST, OURS, WITHDRAWN, TAKEN = range(4)

BEAT = """
local told = {}
for i = 3, #ARGV do
  local id = ARGV[i]
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
  if not pending then
    told[#told + 1] = 0
  elseif pending[2] ~= ARGV[2] then
    told[#told + 1] = 3
  elseif #redis.call('XRANGE', KEYS[1], id, id) == 0 then
    redis.call('XACK', KEYS[1], ARGV[1], id)
    told[#told + 1] = 2
  else
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'JUSTID')
    told[#told + 1] = 1
  end
end
return told
"""
"""group, consumer, ids → for each LOST (nobody has it), OURS, WITHDRAWN or TAKEN by another.

What is ours is no longer idle then. Never a bare XCLAIM: it would take an entry back from who has
claimed it while we were stalled. XCLAIM alone tells of a deleted entry only from Redis 7 on.
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
"""group, consumer, ms, most → entries that were idle for so long: [id, fields, whose, deliveries].

They are ours then. Those that were withdrawn meanwhile are forgotten.
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
"""group, consumer, ms → how many entries it had. Others may claim them at once; it has left.

A consumer that has entries stays, for with it they would be forgotten.
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
"""group, dead, silent → how many live, and the names of dead ones, which are removed.

Dead is who has no entries and was not seen for `dead` ms; who was within `silent` ms lives.
"""
