-- Prints what wrk measured as one line of JSON. `wrk -s wrk.lua URL -- BODY` sends a POST with this JSON.
function init(args)
  if args[1] then
    wrk.method = "POST"
    wrk.body = args[1]
    wrk.headers["Content-Type"] = "application/json"
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
