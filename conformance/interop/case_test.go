package interop

import (
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

func TestCasesAreUniqueAndComplete(t *testing.T) {
	for _, transport := range []verbs.Transport{verbs.TransportIB, verbs.TransportIWARP} {
		names := make(map[string]bool)
		for _, c := range Cases(transport, 1024) {
			if names[c.Name()] {
				t.Errorf("%s is a duplicate", c.Name())
			}
			names[c.Name()] = true
		}
		for name, want := range map[string]bool{
			"write/theirs/cm-ours/ipv6/1048576": true,
			"send/ours/hand/ipv4/0":             transport == verbs.TransportIB,
			"ud-send/ours/cm-theirs/ipv6/1024":  transport == verbs.TransportIB,
			"uc-send/ours/cm-theirs/ipv6/1024":  false,
			"send-imm/ours/cm-ours/ipv4/1":      transport == verbs.TransportIB,
			"read/ours/cm-ours/ipv4/1025":       true,
			"read/ours/cm-ours/ipv6/1005":       transport == verbs.TransportIWARP, // 1024-20+1
			"send/ours/cm-ours/ipv4/1021":       transport == verbs.TransportIWARP, // 1024-4+1
		} {
			if names[name] != want {
				t.Errorf("transport %d has %s: %t", transport, name, names[name])
			}
		}
	}
}

func TestMatching(t *testing.T) {
	all := Cases(verbs.TransportIB, 1024)
	for pattern, want := range map[string]int{"*": len(all), "compare-swap": 12, "compare-swap/ours/hand": 2, "fetch-add/*/*/ipv6": 6, "read/ours/hand/ipv4/1": 1} {
		if matching, err := Matching(all, pattern); err != nil || len(matching) != want {
			t.Errorf("%s: %d, %v; want %d", pattern, len(matching), err, want)
		}
	}
	for pattern, want := range map[string]string{"writ": "no exchange matches", "[": "syntax error in pattern"} {
		if _, err := Matching(all, pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

func TestPatternDependsOnSeed(t *testing.T) {
	a, b := pattern(1, 100), pattern(2, 100)
	if len(a) != 100 || slices.Equal(a, b) || !slices.Equal(a, pattern(1, 100)) || len(pattern(1, 0)) != 0 {
		t.Errorf("% x, % x", a, b)
	}
}
