"""The tests. A folder is called as the room that it tests; what several of them share is in
support.
"""
