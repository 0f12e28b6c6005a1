"""What is on disk, as values: actions, file names, schema, partition values, statistics, deletion vectors.

Pure: nothing here opens a file, reads a clock or knows Spark. The protocol is Delta Lake's.
"""
