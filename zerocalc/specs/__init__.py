"""What a job is: pydantic inputs, frozen, unknown keys refused, units in the types."""
