"""The builder of a trace: it records nodes, evaluates them where values are asked for, and notes guards."""
