"""MEDIC's two tests of safety."""
