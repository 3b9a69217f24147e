"""What tells a user that things are as they should be; functions that return what they found."""
