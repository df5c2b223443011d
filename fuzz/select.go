package fuzz

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cmdline"
)

// wholeStackShares is the share of a target of whole stacks, where that of others is 1:
// an input takes about that much longer.
const wholeStackShares = 4

// Times returns how long each target is fuzzed: the time each, or if that is 0 its share
// of the total.
func Times(total, each time.Duration, targets []Target) []time.Duration {
	shares := make([]int, len(targets))
	sum := 0
	for i, t := range targets {
		if shares[i] = 1; t.Package == "./fuzz" {
			shares[i] = wholeStackShares
		}
		sum += shares[i]
	}
	times := make([]time.Duration, len(targets))
	for i := range times {
		if times[i] = each; each == 0 {
			times[i] = max(total*time.Duration(shares[i])/time.Duration(sum), time.Second).Round(time.Millisecond)
		}
	}
	return times
}

// Select returns the targets that match one of the arguments, in the order of the list;
// all without arguments.
func Select(all []Target, args []string) (some []Target, err error) {
	if len(args) == 0 {
		return all, nil
	}
	used := make([]bool, len(args))
	for _, t := range all {
		wanted := false
		for i, arg := range args {
			if t.matches(arg) {
				wanted, used[i] = true, true
			}
		}
		if wanted {
			some = append(some, t)
		}
	}
	for i, arg := range args {
		if !used[i] {
			var names []string
			for _, t := range all {
				names = append(names, t.String(), t.Name)
			}
			hint := "'fabrictest fuzz --list' shows them"
			if like := cmdline.Similar(arg, names); len(like) > 0 {
				hint = fmt.Sprintf("did you mean %s?", strings.Join(like, " or "))
			}
			return nil, cmdline.Errorf("no fuzz target %q: %s", arg, hint)
		}
	}
	return some, nil
}

// matches reports whether an argument names a target: by its package, its function or
// both, or by a pattern of either. A pattern that ends in /* matches all packages below.
func (t Target) matches(arg string) bool {
	arg = strings.TrimSuffix(strings.TrimPrefix(arg, "./"), "/...")
	pkg := strings.TrimPrefix(t.Package, "./")
	if below, ok := strings.CutSuffix(arg, "/*"); ok && strings.HasPrefix(pkg, below+"/") {
		return true
	}
	for _, name := range []string{pkg, t.Name, t.String()} {
		if ok, err := path.Match(arg, name); ok && err == nil {
			return true
		}
	}
	return strings.HasPrefix(pkg, arg+"/")
}
