"""The measurements. Each module is a script: one peer, one fresh process, JSON on stdout."""
