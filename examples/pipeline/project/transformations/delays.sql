CREATE MATERIALIZED VIEW delays
COMMENT 'how late each carrier is'
AS SELECT carrier, count(*) AS flights, count(delay) AS departed, sum(delay) AS minutes FROM flights GROUP BY carrier;
