BEGIN;
UPDATE rows SET note = 'first change' WHERE id = 1;
DELETE FROM rows WHERE id = 2;
UPDATE rows SET id = 30 WHERE id = 3;
COMMIT;
UPDATE rows SET note = 'second change' WHERE id = 1;
CREATE TABLE done (id integer PRIMARY KEY);
INSERT INTO done VALUES (1);
