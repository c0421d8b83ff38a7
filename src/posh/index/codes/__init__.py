"""``posh.CodeIndex``: sparse and dense codes, searched by shared bits."""
