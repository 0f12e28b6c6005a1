-- Rows for a snapshot, with changes right behind it.
CREATE TABLE rows (id integer PRIMARY KEY, note text);
INSERT INTO rows SELECT i, 'from the snapshot' FROM generate_series(1, 4) i;
