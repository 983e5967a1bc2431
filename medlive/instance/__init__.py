"""This instance: its settings as read, its folders, and what the settings name, opened."""
