"""The soak: everything at once on one table, processes killed at random, and at the end every row is accounted for.

`make soak` runs it for 30 minutes (`SOAK_MINUTES`); `python -m tests.soak --minutes 3 --seed 7` for less.

- `settings`: how long, how fast, how often: all that follows from the minutes and the seed
- `folder`: where everything is
- `rows`: what the streams and the updater write, and so the rows that must be there in the end
- `journal`: what the updater has decided, on disk before it does it
- `replica`: a copy of the table as a consumer keeps it, with its position, in SQLite
- `stream`, `updater`, `fast_consumer`, `slow_consumer`: the programs that are killed
- `programs`: these programs and the daemons as processes
- `disruptions`: when which process is killed or paused
- `processes`: memory, file descriptors, threads and CPU of a process and of those below it
- `log_tail`: the commits, read from the log's JSON while they are there
- `sampling`: the curves
- `conductor`: starts, disrupts, samples and ends all of them
- `flatness`: whether a curve is flat
- `bounds`: how much debt and how many files there may be at each moment
- `checks`: what must be true in the end
- `report`: the run as JSON, as a page and as text
- `run`: a run from the empty folder to the report
- `support`: helpers of its own tests
"""
