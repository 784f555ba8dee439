"""The outputs for users, computed from the timeline: tables, JSON, traces."""
