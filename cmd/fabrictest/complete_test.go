package main

import (
	"strings"
	"testing"
)

func TestCompletionsBeginAsTyped(t *testing.T) {
	for _, c := range []struct {
		words string
		typed string
		some  string
	}{
		{"run", "loss", "loss-1-percent"},
		{"run --tag", "qu", "quick"},
		{"run --defect", "Ack", "AckCompletesRead"},
		{"run --on", "n", "netns"},
		{"lab up --like", "incast", "incast-ecn"},
		{"lab exec --like", "incast", "incast-ecn"},
		{"lab up --fabric", "f", "fat-tree"},
		{"conform", "rc/psn/gap", "rc/psn/gap-naked-once"},
		{"conform show", "mpa/fpdu", "mpa/fpdu/layout"},
		{"conform --label", "service:r", "service:rc"},
		{"conform --as", "rxe", "rxe-6.12"},
		{"conform --device", "softi", "softiwarp"},
		{"conform --defect", "AckPSN", "AckPSNOff"},
		{"replay", "la", "last"},
		{"replay last", "loss", "loss-1-percent"},
	} {
		_, out, _ := call(t, append([]string{"__complete"}, append(strings.Fields(c.words), c.typed)...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if !strings.Contains(out, c.some) {
			t.Errorf("%s %s<TAB>: no %s in\n%s", c.words, c.typed, c.some, out)
		}
		for _, l := range lines[:len(lines)-1] { // the last is a directive
			if !strings.HasPrefix(l, c.typed) {
				t.Errorf("%s %s<TAB> offers %s", c.words, c.typed, l)
			}
		}
	}
}
