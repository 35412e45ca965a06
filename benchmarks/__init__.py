"""What the course's graphs bring and what the course costs its user, measured in one run:  make bench"""
