"""Where users come in: targets of a command, `audit`, attacks as objects, folders of audits."""
