"""The applications of the web cases. BENCH_PEER names the package, BENCH_MODEL the model."""
