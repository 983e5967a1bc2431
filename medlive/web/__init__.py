"""The server-rendered application: a folder for each room (`downloads`, `accounts`, `audit`, `acts`, `review`).

A room has a `room.py` with its routes and the sections of the navigation; `app.py` lists the rooms. Public rooms
need no account and may run in a process of their own.
"""
