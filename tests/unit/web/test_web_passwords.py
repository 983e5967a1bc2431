"""New passwords: what is guessed first is refused, whatever characters it is made of."""

import pytest

from medlive.web.accounts.passwords import fault_of


@pytest.mark.parametrize(
    "password",
    [
        "aaaaaaaaaaaa",
        "abababababab",
        "12341234123412",
        "horsehorsehorse",
        "123456789012",
        "987654321098",
        "abcdefghijkl",
        "qwertyuiopas",
        "Password1234",
        "ＰＡＳＳＷＯＲＤ１２３４",
        "P@ssw0rd2026!!",
        "adalovelace1",
        "ADALOVELACE2026!",
        "medlive-admin",
        "letmein12345",
        "passwordpassword1",
        "1q2w3e4r5t6y",
    ],
)
def test_what_is_guessed_first_is_refused(password: str) -> None:
    assert fault_of(password, password, "adalovelace")


@pytest.mark.parametrize(
    "password",
    [
        "correct horse battery",
        "头痛三天没有发烧应该看什么科",
        "mzXq83-ktPwa",
        "my cat eats 12 fish",
        "kilo password ostrich",
    ],
)
def test_others_are_taken(password: str) -> None:
    assert fault_of(password, password, "ada") is None
