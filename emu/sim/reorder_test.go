package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// everyRun calls run with a Chooser for each possible run, and returns its distinct results, sorted.
func everyRun(t *testing.T, run func(Chooser) string) []string {
	t.Helper()
	results := map[string]bool{}
	path := []int{}
	for n := 0; ; n++ {
		if n == 10_000 {
			t.Fatal("more than 10000 runs")
		}
		s := &script{answers: path}
		results[run(s)] = true
		path = append(slices.Clone(path), make([]int, len(s.sizes)-len(path))...)
		i := len(path) - 1
		for ; i >= 0 && path[i] == s.sizes[i]-1; i-- {
		}
		if i < 0 {
			break
		}
		path = append(path[:i:i], path[i]+1)
	}
	var all []string
	for r := range results { //layers:ordered sorted below
		all = append(all, r)
	}
	slices.Sort(all)
	return all
}

func TestEventsWithinReorderRunInAnyOrder(t *testing.T) {
	run := func(c Chooser) (order string) {
		w := New(Config{Chooser: c, Reorder: 10})
		for i, at := range []mono.Time{100, 105, 110, 115} {
			w.NewTimer(HandlerFunc(func(now mono.Time, _ uint64) {
				if now < at || now > at+10 {
					t.Errorf("the event of %v runs at %v", at, now)
				}
				order += fmt.Sprint(i)
			}), 0).Reset(at)
		}
		if err := w.Run(); err != nil {
			t.Error(err)
		}
		return order
	}
	if got := run(&script{}); got != "0123" {
		t.Errorf("choice 0 gives the order %s", got)
	}
	got := everyRun(t, run)
	// Event 3 cannot overtake event 0, and may overtake the others.
	want := []string{"0123", "0132", "0213", "0231", "0312", "0321", "1023", "1032", "1203", "2013", "2031", "2103"}
	if !slices.Equal(got, want) {
		t.Errorf("orders %v, want %v", got, want)
	}
}

func TestReorderRunsProgramsLate(t *testing.T) {
	got := everyRun(t, func(c Chooser) (order string) {
		w := New(Config{Chooser: c, Reorder: 10})
		for _, name := range []string{"a", "b"} {
			w.Go(name, func(p *Proc) error {
				order += name
				p.Yield()
				order += name
				return nil
			})
		}
		w.AtFunc(5, func() { order += "1" })
		w.AtFunc(5, func() { order += "2" })
		w.AtFunc(20, func() { order += "3" })
		if err := w.Run(); err != nil {
			t.Error(err)
		}
		return order
	})
	for _, o := range got {
		if i, j := slices.Index([]byte(o), '1'), slices.Index([]byte(o), '2'); i > j || o[len(o)-1] != '3' {
			t.Errorf("order %s: functions of AtFunc keep their order, and 3 is too late to overtake", o)
		}
		if o[:2] == "aa" || o[:2] == "bb" {
			t.Errorf("order %s: a program that has yielded runs before the other", o)
		}
	}
	if !slices.Contains(got, "12abab3") || !slices.Contains(got, "abab123") || !slices.Contains(got, "ab1ab23") {
		t.Errorf("orders %v", got)
	}
}

func TestReorderKeepsOrderOnCable(t *testing.T) {
	got := everyRun(t, func(c Chooser) string {
		w := New(Config{Chooser: c, Reorder: time.Microsecond})
		a, b := pair(t, w, LinkConfig{Latency: 100, RateBps: 100e9})
		a.send(t, b, numbered(0), numbered(1), numbered(2))
		if err := w.Run(); err != nil {
			t.Error(err)
		}
		return fmt.Sprint(b.numbers())
	})
	if !slices.Equal(got, []string{"[0 1 2]"}) {
		t.Errorf("packets of one cable arrive as %v", got)
	}
}

func TestSprayedPacketsOvertakeWithinBound(t *testing.T) {
	for spray, want := range map[int][]string{
		0: {"[0 1 2]"},
		1: {"[0 1 2]", "[0 2 1]", "[1 0 2]"},
		2: {"[0 1 2]", "[0 2 1]", "[1 0 2]", "[1 2 0]", "[2 0 1]", "[2 1 0]"},
	} {
		got := everyRun(t, func(c Chooser) string {
			w := New(Config{Chooser: c})
			n := newNet(t, w, NetConfig{Cable: true})
			a := attach(t, n, PortConfig{Link: LinkConfig{Latency: 100, RateBps: 100e9, Spray: spray}})
			b := attach(t, n, PortConfig{Link: LinkConfig{Latency: 100}})
			a.send(t, b, numbered(0), numbered(1), numbered(2))
			if err := w.Run(); err != nil {
				t.Error(err)
			}
			if sent := b.Stats().Delivered; sent != 3 {
				t.Errorf("%d packets were delivered", sent)
			}
			return fmt.Sprint(b.numbers())
		})
		if !slices.Equal(got, want) {
			t.Errorf("spray %d: packets arrive as %v, want %v", spray, got, want)
		}
	}
}

func TestFaultsAreChosenWithinLimit(t *testing.T) {
	got := everyRun(t, func(c Chooser) string {
		w := New(Config{Chooser: c, Faults: 1})
		a, b := pair(t, w, LinkConfig{Latency: 100, RateBps: 100e9})
		a.send(t, b, numbered(0), numbered(1))
		if err := w.Run(); err != nil {
			t.Error(err)
		}
		return fmt.Sprint(b.numbers())
	})
	want := []string{"[0 0 1]", "[0 1 1]", "[0 1]", "[0]", "[1 0]", "[1]"}
	if !slices.Equal(got, want) {
		t.Errorf("packets arrive as %v, want %v", got, want)
	}
}
