import pandas as pd


def test_a_report_names_the_rule_and_the_groups():
    frame = pd.DataFrame({"t": ["ab", "ac", None], "g": [1, 1, 2]})
    plan = frame.simjoin.edit_plan("t", 1, transpositions=True, by="g")
    text = str(plan)
    assert plan.title == "Plan of an edit self-join, k=1, with transpositions"
    assert "without a text" in text and "within" in text and "by length" in text
    assert plan.characters == 4 and plan.pairs == 1
