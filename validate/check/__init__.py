"""Whether a measured exchange is what the machine should do, and what would explain it where it is not."""
