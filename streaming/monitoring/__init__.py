"""What a stream reports about itself: batch reports, a structured log, and observed metrics."""
