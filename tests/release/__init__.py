"""What is published: built, installed into an empty environment, and tried there."""
