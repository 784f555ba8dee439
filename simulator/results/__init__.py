"""What a user sees, computed from the timeline: tables, JSON, traces."""
