"""The review desk: studies that people rate blind, their agreement and what they disagree on; open disputes."""
