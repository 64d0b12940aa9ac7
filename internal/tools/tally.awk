# SPDX-License-Identifier: Apache-2.0
# Reads `go test -v`, leaves out what says only that a test began or passed, and counts at the end. Its exit code is nothing to go
# by: the pipeline fails with go test.
/^ *=== (RUN|PAUSE|CONT|NAME) / { next }
/^ *--- PASS: /                 { passed++; next }
/^ *--- FAIL: /                 { failed++ }
/^ *--- SKIP: /                 { skipped++ }
/^PASS$/ || /\[no test files\]/ { next }
                                { print; fflush() }
END                             { printf "%s: %d passed, %d failed, %d skipped\n", suite, passed, failed, skipped }
