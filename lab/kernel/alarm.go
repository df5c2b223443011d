package kernel

import (
	"regexp"
	"strings"
)

// alarm is a line by which Linux says that something is wrong with itself, and not with
// what it was asked to do. Lines of mere warning are none: they may be about anything.
var alarm = regexp.MustCompile(`BUG: |Oops: |Kernel panic - |kernel BUG at |general protection fault|stack segment: |double fault|` +
	`Unable to handle kernel |rcu: INFO: |soft lockup|hard LOCKUP|blocked for more than \d+ seconds|refcount_t: |list_(add|del) corruption|` +
	`KASAN: |KFENCE: |Slab corruption|(Poison|Redzone|Object padding) overwritten|Object already free`)

// stamp is the time that Linux puts before a line, and who printed it.
var stamp = regexp.MustCompile(`^\[[ .0-9]+\](\[[ TC0-9]+\])? ?`)

// Alarms are the lines of a console, without their times, by which its kernel says that
// something is wrong with itself.
func Alarms(console string) (lines []string) {
	for line := range strings.Lines(console) {
		if alarm.MatchString(line) {
			lines = append(lines, strings.TrimSpace(stamp.ReplaceAllString(line, "")))
		}
	}
	return lines
}

// AlarmReport is a console from the line of its first alarm on, and no more lines of it
// than that; of a console without one, the last of it.
func AlarmReport(console string, most int) string {
	lines := strings.Split(strings.TrimRight(console, "\n"), "\n")
	for i, line := range lines {
		if alarm.MatchString(line) {
			return strings.Join(lines[i:min(len(lines), i+most)], "\n")
		}
	}
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
