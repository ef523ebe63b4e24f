"""Which nodes a node affinity takes, and which pods a label selector does, by Kubernetes' own rules."""

from __future__ import annotations

from collections.abc import Mapping

from muster.kube.objects import Expression, Selector, Term

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def shown(term: Term) -> str:
    """A term in words, such as ``tier In (2, 3) and pool Exists``."""
    each = [*(term.match_expressions or ()), *(term.match_fields or ())]
    parts = [f"{one.key} {one.operator}" + (f" ({', '.join(one.values)})" if one.values else "") for one in each]
    return " and ".join(parts) or "nothing"


def expression_fault(each: Expression) -> tuple[str, str] | None:
    """What is wrong with an expression: the field and what; None where nothing is."""
    values = each.values or []
    if each.operator not in OPERATORS:
        return "operator", f"is {each.operator[:20]!r}"
    if each.operator in ("In", "NotIn") and not values:
        return "values", f"is empty for operator {each.operator}"
    if each.operator in ("Gt", "Lt") and not (len(values) == 1 and values[0].lstrip("-").isdigit()):
        return "values", f"must be one whole number for operator {each.operator}"
    return None


def term_takes(term: Term, labels: Mapping[str, str], name: str) -> bool:
    """All expressions of a term hold for a node of these labels and name; a term without any takes nothing."""
    expressions, fields = term.match_expressions or [], term.match_fields or []
    if not expressions and not fields:
        return False
    named = {"metadata.name": name}
    return all(holds(each, labels) for each in expressions) and all(holds(each, named) for each in fields)


def holds(each: Expression, labels: Mapping[str, str]) -> bool:
    """Whether an expression without `expression_fault` holds for some labels."""
    value, values = labels.get(each.key), each.values or []
    match each.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            if value is None or not value.lstrip("-").isdigit():
                return False
            return int(value) > int(values[0]) if each.operator == "Gt" else int(value) < int(values[0])


def selects(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector takes the pods of these labels; none takes none."""
    if selector is None:
        return False
    same = all(labels.get(key) == value for key, value in (selector.match_labels or {}).items())
    return same and all(
        each.operator in OPERATORS[:4] and holds(each, labels) for each in selector.match_expressions or ()
    )
