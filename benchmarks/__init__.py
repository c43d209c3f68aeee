"""What is measured: accuracy and speed, each by a script that says what it asks."""
