"""Registered consumers of the change feed: how far each one has read, which holds back clean-ups.

A consumer at position p has processed every commit up to version p. It needs the commits after p with the files that
they name, and the state at p. `expire` and `vacuum` keep these for every consumer that is live.

A consumer and a clean-up each write first and look second, so that at least one of the two sees the other:

- A consumer writes its position, then reads horizon and floor in the log. If either has passed the position, the
  registration is withdrawn and the consumer gets a HistoryExpiredError.
- A clean-up commits the horizon or the floor, then reads the consumers, and deletes only what no live one needs.

A consumer is live while its newest record is younger than `tidelog.consumerTimeToLive`, by the store's clock. One that
was silent for longer holds nothing any more. When it wakes up, it writes and looks again, as one that starts.

- `consumer_record`: what is stored about a consumer, and the rules for names
- `record_files`: the files that hold the records
- `store_clock`: the time by the store's clock
- `bounds`: how far clean-up has gone, and whether it has passed a position
- `registration`: write and look
- `claims`: register a consumer, or continue it
- `consumer`: one that this process owns: advance it, keep it alive, release it
- `hold`: what clean-ups must keep for consumers
- `consumer_status`: all consumers with their lags
- `administration`: move or remove a consumer from outside
"""
