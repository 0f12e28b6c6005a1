-- The tables of the recording, and the rows that Debezium's snapshot reads.
CREATE EXTENSION hstore;
CREATE EXTENSION citext;
CREATE EXTENSION ltree;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'very happy');
CREATE DOMAIN cents AS numeric(9, 2) CHECK (VALUE > -1000000);

CREATE TABLE types (
    id integer PRIMARY KEY,
    small smallint, whole integer, big bigint, yes boolean,
    single real, double double precision,
    n5_0 numeric(5, 0), n9_2 numeric(9, 2), n18_4 numeric(18, 4), n38_10 numeric(38, 10), n50_5 numeric(50, 5),
    n_free numeric, price money, domain_value cents,
    line varchar(40), fixed char(6), words text, anycase citext,
    day date, ts0 timestamp(0), ts1 timestamp(1), ts3 timestamp(3), ts4 timestamp(4), ts6 timestamp(6), ts timestamp,
    tz0 timestamptz(0), tz3 timestamptz(3), tz6 timestamptz(6), tz timestamptz,
    t0 time(0), t3 time(3), t6 time(6), t_zone timetz, span interval,
    plain json, indexed jsonb, markup xml, state mood, raw bytea, id4 uuid,
    ints integer[], bigs bigint[], floats double precision[], texts text[], decimals numeric(9, 2)[], days date[],
    moments timestamp[], zoned timestamptz[], flags boolean[], ids uuid[], grid integer[][], moods mood[],
    address inet, network cidr, mac macaddr, pairs hstore, path ltree,
    one_bit bit(1), bits bit(12), more_bits bit varying(20), place point,
    int_range int4range, date_range daterange, search tsvector
);
INSERT INTO types (id, small, whole, big, yes, single, double, n5_0, n9_2, n18_4, n38_10, n50_5, n_free, price,
    domain_value, line, fixed, words, anycase, day, ts0, ts1, ts3, ts4, ts6, ts, tz0, tz3, tz6, tz, t0, t3, t6, t_zone,
    span, plain, indexed, markup, state, raw, id4, ints, bigs, floats, texts, decimals, days, moments, zoned, flags,
    ids, grid, moods, address, network, mac, pairs, path, one_bit, bits, more_bits, place, int_range, date_range,
    search)
VALUES (1, -7, 42, 1234567890123, true, 1.5, 2.25, 12345, 1234567.89, 12345678901234.5678,
    1234567890123456789012345678.0123456789, 123456789012345678901234567890123456789012345.12345, 3.14159, 1234.56,
    99.95, 'a line', 'ab', 'some words', 'AnyCase', '2024-02-29', '2024-02-29 12:34:56.789',
    '2024-02-29 12:34:56.789', '2024-02-29 12:34:56.789', '2024-02-29 12:34:56.7891', '2024-02-29 12:34:56.789123',
    '2024-02-29 12:34:56.789123', '2024-02-29 12:34:56+05:30', '2024-02-29 12:34:56.789+05:30',
    '2024-02-29 12:34:56.789123-08', '2024-02-29 12:34:56.789123Z', '12:34:56', '12:34:56.789', '12:34:56.789123',
    '12:34:56.789123+02', '1 year 2 months 3 days 04:05:06.789', '{"b": 1,  "a": [1, 2.50, null]}',
    '{"b": 1,  "a": [1, 2.50, null]}', '<a b="1">x</a>', 'very happy', '\x00ff10', 'c0ffee00-1234-4abc-8def-0123456789ab',
    '{1,2,3}', '{1,9007199254740993}', '{1.5,-2}', '{a,"b c","",NULL,"NULL"}', '{1.50,-2.25}', '{2024-02-29,1970-01-01}',
    '{"2024-02-29 12:34:56.789123"}', '{"2024-02-29 12:34:56.789123+02"}', '{true,false,NULL}',
    '{c0ffee00-1234-4abc-8def-0123456789ab}', '{{1,2},{3,4}}', '{ok,"very happy"}', '192.168.1.7/24', '10.1.0.0/16',
    '08:00:2b:01:02:03', 'a=>1, b=>NULL, "c d"=>"e"', 'top.science', B'1', B'101010101010', B'10101', '(1.5,-2.5)',
    '[1,10)', '[2024-01-01,2024-02-01)', 'fat cats');
INSERT INTO types (id) VALUES (2);

-- Values that few other systems can hold.
CREATE TABLE edges (id integer PRIMARY KEY, what text, day date, ts timestamp, tz timestamptz, ts3 timestamp(3),
    n numeric, single real, double double precision);
INSERT INTO edges (id, what, day, ts, tz) VALUES
    (1, 'infinity', 'infinity', 'infinity', 'infinity'),
    (2, 'minus infinity', '-infinity', '-infinity', '-infinity'),
    (3, 'before Christ', '0044-03-15 BC', '0044-03-15 12:00:00 BC', '0044-03-15 12:00:00+00 BC');
INSERT INTO edges (id, what, n, single, double) VALUES (4, 'not a number', 'NaN', 'NaN', 'NaN'),
    (5, 'infinite numbers', NULL, 'Infinity', '-Infinity');

CREATE TABLE documents (id uuid PRIMARY KEY, title text, revision integer NOT NULL DEFAULT 0, body text, data bytea,
    doc jsonb, tags text[], numbers integer[], bigs bigint[], pairs hstore);
ALTER TABLE documents ALTER body SET STORAGE EXTERNAL, ALTER data SET STORAGE EXTERNAL, ALTER doc SET STORAGE EXTERNAL,
    ALTER tags SET STORAGE EXTERNAL, ALTER numbers SET STORAGE EXTERNAL, ALTER bigs SET STORAGE EXTERNAL,
    ALTER pairs SET STORAGE EXTERNAL;
INSERT INTO documents SELECT ('00000000-0000-4000-8000-00000000000' || i)::uuid, 'title ' || i, 0,
    repeat('text ' || i || ' ', 300), convert_to(repeat('data ' || i, 400), 'UTF8'),
    jsonb_build_object('n', i, 'long', repeat('json ' || i, 500)),
    array(SELECT 'tag ' || i || '-' || j FROM generate_series(1, 200) j),
    array(SELECT i * 1000 + j FROM generate_series(1, 600) j),
    array(SELECT i * 10000000000 + j FROM generate_series(1, 400) j), hstore('k', repeat('value ' || i, 500))
FROM generate_series(1, 4) i;

-- A key change of a row with a TOASTed value: Debezium leaves the value out of the new row.
CREATE TABLE moved_documents (id integer PRIMARY KEY, body text);
ALTER TABLE moved_documents ALTER body SET STORAGE EXTERNAL;
INSERT INTO moved_documents VALUES (1, repeat('text ', 600)), (2, repeat('other ', 600));

-- Every change has the whole row before it.
CREATE TABLE full_identity (id integer PRIMARY KEY, title text, body text);
ALTER TABLE full_identity ALTER body SET STORAGE EXTERNAL;
ALTER TABLE full_identity REPLICA IDENTITY FULL;
INSERT INTO full_identity SELECT i, 'title ' || i, repeat('text ' || i || ' ', 300) FROM generate_series(1, 3) i;

CREATE TABLE keys (a integer, b text, note text, PRIMARY KEY (a, b));
INSERT INTO keys SELECT i, 'b' || i, 'from the snapshot' FROM generate_series(1, 6) i;

CREATE TABLE truncated (id integer PRIMARY KEY, note text);
INSERT INTO truncated SELECT i, 'from the snapshot' FROM generate_series(1, 3) i;

CREATE TABLE no_key (a integer, b text);
ALTER TABLE no_key REPLICA IDENTITY FULL;
INSERT INTO no_key VALUES (1, 'one'), (2, 'two'), (3, NULL);

CREATE TABLE evolving (id integer PRIMARY KEY, amount integer, ratio real, price numeric(6, 2), label varchar(5) NOT NULL);
INSERT INTO evolving VALUES (1, 10, 0.5, 1.25, 'one'), (2, 20, 0.25, 2.50, 'two');

CREATE TABLE accounts (id bigint PRIMARY KEY, balance numeric(12, 2) NOT NULL);
CREATE TABLE transfers (id bigint PRIMARY KEY, source bigint, target bigint, amount numeric(12, 2));
INSERT INTO accounts SELECT i, 100 FROM generate_series(1, 5) i;

CREATE TABLE "Odd Names" ("the key" integer PRIMARY KEY, "with.dot" text, "Mixed Case" text);
INSERT INTO "Odd Names" VALUES (1, 'a', 'b');
