"""The tests here start jobs, in an environment that no outer job or user has set."""

from surroundings import LAUNCHERS, USERS, forget

forget(*LAUNCHERS, *USERS)
