"""The YAML file of a machine: schema, checks, errors, pictures."""
