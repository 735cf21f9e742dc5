//! Questions about a cluster, for `oncebox check` and `oncebox status`.
