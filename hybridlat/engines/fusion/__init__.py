"""Groups of fused operators: rewriting by rules, grouping, taking a kernel apart again."""
