"""What writes the pages that people meet first: the README, and the site."""
