#!/usr/bin/env bash
# Opens an issue, or adds to the open one, and fails, when the week's run failed or the last green GPU run is too old.
set -euo pipefail
title="The weekly run needs a look"
days=8

problems=()
if [[ "$RESULT" != success ]]; then
  problems+=("- The lessons did not run as recorded: $RESULT.")
fi
green=$(gh run list --workflow gpu.yml --branch "$BRANCH" --status success --limit 1 --json createdAt --jq '.[].createdAt')
if [[ -z "$green" ]]; then
  problems+=("- No GPU run has been green yet.")
elif (( $(date --date "$green" +%s) < $(date --date "$days days ago" +%s) )); then
  problems+=("- The last green GPU run is older than $days days: $green.")
fi
if (( ${#problems[@]} == 0 )); then
  echo "All lessons ran, and the last green GPU run is of $green."
  exit 0
fi

body=$(printf '%s\n' "${problems[@]}" "" "$RUN")
open=$(gh issue list --state open --search "in:title \"$title\"" --limit 1 --json number --jq '.[].number')
if [[ -n "$open" ]]; then
  gh issue comment "$open" --body "$body"
else
  gh issue create --title "$title" --body "$body"
fi
printf '%s\n' "${problems[@]}" >&2
exit 1
