"""What is counted and timed, and the report that explains it.

- `stats`: the type that ``stats()`` returns. `parts`, `time_summary`: the types of its members.
- `explain`: the text of ``explain()``. `explain_groups` and so on have parts of it, and `verdict`
  its last sentence.
- `formats`: numbers and times as text.
"""
