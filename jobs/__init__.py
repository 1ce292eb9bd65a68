"""The demand side: requests, profiles, the completion-time estimate, and the
live job.
"""
