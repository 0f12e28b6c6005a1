"""Used by both demos: the working folder, and child processes that never outlive the demo."""
