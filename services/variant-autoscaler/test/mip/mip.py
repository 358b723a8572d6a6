"""Solves integer programs with HiGHS: one JSON object on standard input gives one on standard output.

{"costs": [..], "low": [..], "high": [..], "rows": [{"index": [..], "value": [..], "low": number, "high": number}], "nodes": limit of the search}
{"cost": of the best solution, "bound": which no solution undercuts}
"""

import json
import sys

import highspy

for line in sys.stdin:
    problem = json.loads(line)
    solver = highspy.Highs()
    solver.silent()
    solver.setOptionValue("mip_rel_gap", 1e-6)
    solver.setOptionValue("mip_max_nodes", problem["nodes"])
    for cost, low, high in zip(problem["costs"], problem["low"], problem["high"]):
        solver.addCol(cost, low, high, 0, [], [])
    count = len(problem["costs"])
    solver.changeColsIntegrality(count, list(range(count)), [highspy.HighsVarType.kInteger] * count)
    for row in problem["rows"]:
        low = row.get("low", -highspy.kHighsInf)
        high = row.get("high", highspy.kHighsInf)
        solver.addRow(low, high, len(row["index"]), row["index"], row["value"])
    solver.run()
    info = solver.getInfo()
    if info.primal_solution_status != 2:  # feasible
        sys.exit("no solution: " + solver.modelStatusToString(solver.getModelStatus()))
    print(json.dumps({"cost": info.objective_function_value, "bound": info.mip_dual_bound}), flush=True)
