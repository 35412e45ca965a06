"""What is inside the pictures that one can touch."""

import json
import re
from html import unescape


def data_of(html):
    """What a picture's script is given."""
    return json.loads(unescape(re.search(r"""<figure[^>]* data-\w+=(["'])(.*?)\1""", html)[2]))
