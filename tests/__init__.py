"""The tests mirror the packages; `support` modules hold what the tests of one folder share."""
