package engine

import (
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/mono"
)

func TestNotifierSendsOneCNPPerInterval(t *testing.T) {
	var n cnpNotifier
	var sent []mono.Time
	const start = 7_000 // the first mark is answered whenever it comes
	for us := range mono.Time(120) {
		if now := start + us*1000; n.OnMark(now, defaultCNPInterval) {
			sent = append(sent, now)
		}
	}
	if want := []mono.Time{start, start + 50_000, start + 100_000}; !slices.Equal(sent, want) {
		t.Errorf("CNPs at %v, want %v", sent, want)
	}
}

func TestNotifierIntervalStartsAtLastCNP(t *testing.T) {
	var n cnpNotifier
	for _, tc := range []struct {
		now  mono.Time
		want bool
	}{
		{-3_000, true}, {0, false}, {46_999, false}, {47_000, true}, // epoch and sign mean nothing
		{200_000, true}, {249_999, false}, {250_000, true}, {250_000, false},
	} {
		if got := n.OnMark(tc.now, defaultCNPInterval); got != tc.want {
			t.Errorf("Mark(%v) = %v", tc.now, got)
		}
	}
}

func TestNotifierWithoutIntervalAnswersEveryMark(t *testing.T) {
	var n cnpNotifier
	for i := range 100 {
		if !n.OnMark(1, 0) {
			t.Fatalf("mark %d was not answered", i)
		}
	}
}
