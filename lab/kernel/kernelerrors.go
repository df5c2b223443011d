package kernel

import (
	"regexp"
	"strings"
)

// kernelErrorLine matches lines in which Linux reports an internal error. Plain
// warnings are not matched.
var kernelErrorLine = regexp.MustCompile(`BUG: |Oops: |Kernel panic - |kernel BUG at |general protection fault|stack segment: |double fault|` +
	`Unable to handle kernel |rcu: INFO: |soft lockup|hard LOCKUP|blocked for more than \d+ seconds|refcount_t: |list_(add|del) corruption|` +
	`KASAN: |KFENCE: |Slab corruption|(Poison|Redzone|Object padding) overwritten|Object already free`)

// timestamp matches the timestamp and caller before a line.
var timestamp = regexp.MustCompile(`^\[[ .0-9]+\](\[[ TC0-9]+\])? ?`)

// Errors returns the lines of a console with internal errors of the kernel,
// without timestamps.
func Errors(console string) (lines []string) {
	for line := range strings.Lines(console) {
		if kernelErrorLine.MatchString(line) {
			lines = append(lines, strings.TrimSpace(timestamp.ReplaceAllString(line, "")))
		}
	}
	return lines
}

// ErrorReport returns up to most lines of a console from the first kernel
// error on; without one, the last lines.
func ErrorReport(console string, most int) string {
	lines := strings.Split(strings.TrimRight(console, "\n"), "\n")
	for i, line := range lines {
		if kernelErrorLine.MatchString(line) {
			return strings.Join(lines[i:min(len(lines), i+most)], "\n")
		}
	}
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
