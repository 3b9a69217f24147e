"""The loops: rollout, learner, evaluator, runner. Owns the order, owns no maths."""
