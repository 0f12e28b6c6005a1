-- What happens after the snapshot. Each line in autocommit mode, except between BEGIN and COMMIT.
UPDATE keys SET note = 'changed' WHERE a = 1;

-- The extremes of each type, and text that is hard to quote.
INSERT INTO types (id, small, whole, big, yes, single, double, n5_0, n9_2, n18_4, n38_10, n50_5, n_free, price,
    domain_value, line, fixed, words, anycase, day, ts0, ts1, ts3, ts4, ts6, ts, tz0, tz3, tz6, tz, t0, t3, t6, t_zone,
    span, plain, indexed, state, raw, id4, ints, texts, decimals, grid, pairs, one_bit, bits, more_bits, place)
VALUES (3, -32768, -2147483648, -9223372036854775808, false, -3.4e38, -1.7976931348623157e308, -99999, -9999999.99,
    -99999999999999.9999, -9999999999999999999999999999.9999999999, -1, -0.000000000000000000000000000001,
    -92233720368547758.08, -999999.99, E'quote " back \\ tab \t new \n line', 'äöü', E'\u0001\u007f\u0085\u2028 \U0001F600 ''',
    'ß', '0001-01-01', '0001-01-01 00:00:00', '1582-10-04', '1969-12-31 23:59:59.999', '1969-12-31 23:59:59.9999',
    '1969-12-31 23:59:59.999999', '1900-01-01', '0001-01-01 00:00:00+00', '1969-12-31 23:59:59.999+00',
    '1582-10-15 00:00:00+00', '1900-01-01 00:00:00.000001+00', '00:00:00', '23:59:59.999', '23:59:59.999999',
    '23:59:59.999999-12', '-3 days -00:00:00.000001', '"only text"', 'null', 'sad', '', '00000000-0000-0000-0000-000000000000',
    '{}', '{}', '{}', '{{1,NULL},{NULL,4}}', '', B'0', B'000000000000', B'', '(0,0)'),
    (4, 32767, 2147483647, 9223372036854775807, true, 3.4e38, 1.7976931348623157e308, 99999, 9999999.99,
    99999999999999.9999, 9999999999999999999999999999.9999999999, 1,
    123456789012345678901234567890123456789012345678901234567890.5, 92233720368547758.07, 0, '', '', '', '', '9999-12-31',
    '9999-12-31 23:59:59', '9999-12-31 23:59:59.9', '9999-12-31 23:59:59.999', '9999-12-31 23:59:59.9999',
    '9999-12-31 23:59:59.999999', '2038-01-19 03:14:08', '9999-12-31 23:59:59+00', '9999-12-31 23:59:59.999+00',
    '9999-12-31 23:59:59.999999+00', '2024-03-31 01:30:00+00', '24:00:00', '24:00:00', '24:00:00', '00:00:00+14',
    '100 years', '[]', '{"big": 12345678901234567890.123456789, "text": "\u00e9\\u0000"}', 'ok', '\xdeadbeef',
    'ffffffff-ffff-ffff-ffff-ffffffffffff', '{NULL}', '{"quote \" comma , brace }"}', '{0.00,NULL}', '{}', 'a=>"\"=>"',
    NULL, NULL, B'11111111111111111111', NULL);
INSERT INTO types (id, single, double, n_free, n9_2, words) VALUES (5, 'NaN', 'NaN', 1e20, 0.10, '__debezium_unavailable'),
    (6, 'Infinity', '-Infinity', 1.10, -0.01, 'null'), (7, 1e-40, 5e-324, 0, 100, ' '), (8, 0.1, 0.1, 100, 0, NULL);
UPDATE types SET n_free = 2.50, words = NULL, raw = NULL, texts = NULL, indexed = '{}' WHERE id = 1;
UPDATE types SET small = 1, ts6 = '2024-01-01' WHERE id = 2;
UPDATE types SET id = 9 WHERE id = 8;

INSERT INTO edges (id, what, ts, tz, ts3) VALUES (6, 'far', '294276-12-31 23:59:59.999999', '294276-12-31 23:59:59+00',
    '10000-01-01');
INSERT INTO edges (id, what, day) VALUES (7, 'far day', '5874897-12-31');
INSERT INTO edges (id, what, day, ts, tz) VALUES (8, 'infinity', 'infinity', 'infinity', '-infinity');
INSERT INTO edges (id, what, n) VALUES (9, 'infinite numeric', 'Infinity'), (10, 'not a number', 'NaN');
INSERT INTO edges (id, what, single, double) VALUES (11, 'negative zero', '-0', '-0');

-- TOAST: unchanged, one of several changed, shortened, emptied, set to null, changed with the key, written twice.
UPDATE documents SET title = 'only the title' WHERE id = '00000000-0000-4000-8000-000000000001';
UPDATE documents SET revision = 1, body = repeat('new text ', 400) WHERE id = '00000000-0000-4000-8000-000000000001';
UPDATE documents SET revision = 2, body = 'short', data = NULL, tags = '{}' WHERE id = '00000000-0000-4000-8000-000000000002';
UPDATE documents SET revision = 3 WHERE id = '00000000-0000-4000-8000-000000000002';
UPDATE moved_documents SET id = 11 WHERE id = 1;
BEGIN;
UPDATE documents SET body = repeat('first of two ', 300) WHERE id = '00000000-0000-4000-8000-000000000004';
UPDATE documents SET title = 'second of two' WHERE id = '00000000-0000-4000-8000-000000000004';
UPDATE documents SET revision = 9 WHERE id = '00000000-0000-4000-8000-000000000004';
COMMIT;
UPDATE full_identity SET title = 'only the title' WHERE id = 1;
UPDATE full_identity SET id = 12, title = 'other key' WHERE id = 2;
DELETE FROM full_identity WHERE id = 3;

-- Keys: changed, changed back, swapped in one transaction, deleted and inserted again, inserted and deleted.
UPDATE keys SET b = 'changed' WHERE a = 2;
UPDATE keys SET a = 30, note = 'moved' WHERE a = 3;
UPDATE keys SET a = 3, note = 'moved back' WHERE a = 30;
BEGIN;
UPDATE keys SET a = -4 WHERE a = 4;
UPDATE keys SET a = 4, b = 'b4' WHERE a = 5;
UPDATE keys SET a = 5, b = 'b5' WHERE a = -4;
COMMIT;
DELETE FROM keys WHERE a = 6;
INSERT INTO keys VALUES (6, 'b6', 'inserted again');
BEGIN;
DELETE FROM keys WHERE a = 6;
INSERT INTO keys VALUES (6, 'b6', 'again in one transaction');
UPDATE keys SET note = note || ', changed' WHERE a = 6;
INSERT INTO keys VALUES (7, 'b7', 'never seen');
DELETE FROM keys WHERE a = 7;
COMMIT;
BEGIN;
DELETE FROM keys WHERE a = 1;
ROLLBACK;

INSERT INTO truncated VALUES (4, 'before');
TRUNCATE truncated;
INSERT INTO truncated VALUES (2, 'after'), (5, 'after');

INSERT INTO no_key VALUES (4, 'four');
UPDATE no_key SET b = 'TWO' WHERE a = 2;
DELETE FROM no_key WHERE a = 1;

-- The schema: a new column, wider types, a column that may be null.
ALTER TABLE evolving ADD COLUMN note text;
INSERT INTO evolving VALUES (3, 30, 0.75, 3.75, 'three', 'with a note');
ALTER TABLE evolving ALTER amount TYPE bigint, ALTER ratio TYPE double precision, ALTER price TYPE numeric(12, 2),
    ALTER label TYPE text;
INSERT INTO evolving VALUES (4, 40000000000, 0.1, 1234567890.12, 'longer than five', 'wide');
ALTER TABLE evolving ALTER label DROP NOT NULL;
INSERT INTO evolving VALUES (5, NULL, NULL, NULL, NULL, NULL);
UPDATE evolving SET note = 'changed' WHERE id = 1;

BEGIN;
UPDATE accounts SET balance = balance - 10.50 WHERE id = 1;
UPDATE accounts SET balance = balance + 10.50 WHERE id = 2;
INSERT INTO transfers VALUES (1, 1, 2, 10.50);
COMMIT;
BEGIN;
UPDATE accounts SET balance = balance - 0.01 WHERE id = 2;
UPDATE accounts SET balance = balance - 0.01 WHERE id = 2;
UPDATE accounts SET balance = balance + 0.02 WHERE id = 5;
INSERT INTO transfers VALUES (2, 2, 5, 0.01), (3, 2, 5, 0.01);
DELETE FROM transfers WHERE id = 3;
COMMIT;

UPDATE "Odd Names" SET "with.dot" = 'changed' WHERE "the key" = 1;
INSERT INTO "Odd Names" VALUES (2, 'x', NULL);

-- A table that did not exist at the snapshot.
CREATE TABLE late (id integer PRIMARY KEY, note text);
INSERT INTO late VALUES (1, 'new table');
CREATE TABLE done (id integer PRIMARY KEY);
INSERT INTO done VALUES (1);
