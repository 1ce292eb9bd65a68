"""What is asked for: requests, profiles, the completion-time estimate, and the live job."""
