"""What a user's own data says about the inputs of planners: one file a planner, each a function to `FromData`."""
