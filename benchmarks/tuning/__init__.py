"""The figures of docs/tuning, and how good the search of `service-streamer tune` is."""
