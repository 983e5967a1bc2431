"""This instance: read its settings (`loading`), find its folders (`paths`), open what the settings name (`opening`)."""
