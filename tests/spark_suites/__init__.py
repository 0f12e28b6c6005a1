"""Spark's own suites for statements that change rows, with tidelog's catalog in place of Spark's in-memory one.

`make suites-spark` runs them, and writes the page docs/reference/spark-suites.md. It fetches Spark's test jars and
ScalaTest, and compiles `Suites.scala` with the Scala compiler that PySpark has. PySpark starts the JVM, so tidelog's
planner is in the process that runs the suites. Nothing of Spark's is copied: `Suites.scala` extends its classes.

- `jars.py`: what is fetched and compiled
- `run.py`: the JVM, and what became of each test
- `excluded.py`: the tests that cannot apply to tidelog, each with its reason
- `page.py`: the page
"""
