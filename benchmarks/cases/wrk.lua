-- Prints what wrk measured as one line of JSON. `wrk -s wrk.lua URL -- BODY HEADER...` sends a POST
-- with this body, or with the contents of FILE if it is @FILE.
function init(args)
  local body = args[1]
  if not body then
    return
  end
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  wrk.body = body
  if body:sub(1, 1) == "@" then
    local file = assert(io.open(body:sub(2), "rb"))
    wrk.body = file:read("*a")
    file:close()
  end
  for i = 2, #args do
    local name, value = args[i]:match("^(.-): (.*)$")
    wrk.headers[name] = value
  end
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\nJSON {"requests": %d, "seconds": %.6f, "p50_ms": %.4f, "p99_ms": %.4f, "errors": %d}\n',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.status + e.timeout))
end
