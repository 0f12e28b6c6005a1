"""A Spark Connect server whose clients have tidelog."""
