package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// watch records every link change of a host.
func watch(h *host, log *[]string) {
	h.OnLinkChange(HandlerFunc(func(now mono.Time, arg uint64) {
		*log = append(*log, fmt.Sprintf("%s %v@%d", h.Name(), h.Up(), now))
	}), 0)
}

func TestLinkDownDropsPacketsInFlight(t *testing.T) {
	w := New(Config{})
	h := star(t, w, 2, LinkConfig{RateBps: 8e9, Latency: 1000})
	var log []string
	watch(h[0], &log)
	watch(h[1], &log)
	h[0].send(t, h[1], sized(100), sized(100)) // at the switch at 1100, 1200
	w.AtFunc(1150, h[0].SetDown)               // loses the second on the cable
	w.AtFunc(1160, func() { h[0].send(t, h[1], sized(100)) })
	w.AtFunc(2000, h[0].SetUp)
	w.AtFunc(2000, h[0].SetUp) // no change, no event
	w.AtFunc(2001, func() { h[0].send(t, h[1], sized(100)) })
	mustRun(t, w)
	if want := []mono.Time{2200, 4201}; !slices.Equal(h[1].times(), want) {
		t.Errorf("arrivals %v, want %v", h[1].times(), want)
	}
	if s := h[0].Stats(); s.Drops != (Drops{LinkDown: 2}) || s.Sent != 3 {
		t.Errorf("stats %+v", s)
	}
	if want := []string{"h0 false@1150", "h0 true@2000"}; !slices.Equal(log, want) {
		t.Errorf("changes %v, want %v", log, want)
	}
}

// A packet that is sent after the link was down may arrive before those that were lost in the queue.
func TestPacketAfterLinkDownArrivesBeforeLostOnes(t *testing.T) {
	w := New(Config{})
	h := star(t, w, 2, LinkConfig{RateBps: 8e9, Latency: 1000})
	h[0].send(t, h[1], sized(1000), sized(1000), sized(1000)) // at the switch at 2000, 3000, 4000
	w.AtFunc(500, h[0].SetDown)
	w.AtFunc(600, h[0].SetUp)
	var dropped []mono.Time
	h[0].Net().SetDropTap(func(now mono.Time, _, _ string, _ *link.Datagram) { dropped = append(dropped, now) })
	w.AtFunc(700, func() { h[0].send(t, h[1], sized(100), sized(100)) }) // at the switch at 1800, 1900
	mustRun(t, w)
	if want := []mono.Time{2900, 3000}; !slices.Equal(h[1].times(), want) {
		t.Errorf("arrivals %v, want %v", h[1].times(), want)
	}
	if want := []mono.Time{2000, 3000, 4000}; !slices.Equal(dropped, want) {
		t.Errorf("dropped at %v, want %v", dropped, want)
	}
}

func TestReceiverLinkDownDropsPackets(t *testing.T) {
	w := New(Config{})
	h := star(t, w, 2, LinkConfig{RateBps: 8e9, Latency: 1000})
	h[0].send(t, h[1], sized(100), sized(100), sized(100)) // at the switch at 1100, 1200, 1300
	w.AtFunc(1250, h[1].SetDown)                           // two on the cable, one before it
	w.AtFunc(1350, h[1].SetUp)
	w.AtFunc(1400, func() { h[0].send(t, h[1], sized(100)) })
	mustRun(t, w)
	if want := []mono.Time{3600}; !slices.Equal(h[1].times(), want) || h[1].Stats().Drops != (Drops{LinkDown: 3}) {
		t.Errorf("arrivals %v, want %v; %+v", h[1].times(), want, h[1].Stats())
	}
}

func TestCableDownAffectsBothEnds(t *testing.T) {
	w := New(Config{})
	a, b := pair(t, w, LinkConfig{Latency: 100})
	var log []string
	watch(a, &log)
	watch(b, &log)
	w.AtFunc(10, b.SetDown)
	w.AtFunc(20, func() { a.send(t, b, numbered(1)) })
	w.AtFunc(30, a.SetUp)
	mustRun(t, w)
	if want := []string{"h0 false@10", "h1 false@10", "h0 true@30", "h1 true@30"}; !slices.Equal(log, want) || len(b.got) != 0 {
		t.Errorf("changes %v, want %v; %d arrived", log, want, len(b.got))
	}
}

func TestLinkDownMakesFullPortWritable(t *testing.T) {
	w := New(Config{})
	a, b := pair(t, w, LinkConfig{RateBps: 8000, TxQueueBytes: 1000}) // a byte a millisecond
	var at mono.Time
	a.OnWritable(HandlerFunc(func(now mono.Time, _ uint64) { at = now }), 0)
	a.send(t, b, sized(1000), sized(1000))
	w.AtFunc(50, a.SetDown)
	mustRun(t, w)
	if at != 50 {
		t.Errorf("writable at %v, want when the queue was flushed", at)
	}
}

// reach lets every host send to every other and returns which senders each one received from.
func reach(t *testing.T, w *World, h []*host) string {
	t.Helper()
	for _, x := range h {
		x.got = nil
	}
	for i, from := range h {
		for _, to := range h {
			if from != to {
				from.send(t, to, numbered(i))
			}
		}
	}
	mustRun(t, w)
	var heard []string
	for _, to := range h {
		numbers := to.numbers()
		slices.Sort(numbers)
		heard = append(heard, strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ""), "[]"))
	}
	return strings.Join(heard, "/")
}

func TestPartitionBlocksAndHealRestores(t *testing.T) {
	w := New(Config{})
	h := star(t, w, 5, LinkConfig{})
	n := h[0].Net()
	const all = "1234/0234/0134/0124/0123"
	check := func(what, want string) {
		t.Helper()
		if got := reach(t, w, h); got != want {
			t.Errorf("%s: each receives from %q, want %q", what, got, want)
		}
	}
	check("whole", all)
	n.Partition([]*Port{h[0].Port, h[1].Port}, []*Port{h[2].Port})
	check("partitioned, the rest in another group", "1/0//4/3")
	n.Partition([]*Port{h[0].Port})
	check("divided anew", "/234/134/124/123")
	n.Heal()
	check("healed", all)
	if d := h[4].Stats().Drops; d != (Drops{Partitioned: 4}) {
		t.Errorf("host 4: %+v", d)
	}
}

// A packet that has left the switch still arrives after a partition; one that
// has not is dropped.
func TestPartitionDropsPacketsAtSwitch(t *testing.T) {
	w := New(Config{})
	h := star(t, w, 2, LinkConfig{Latency: 100})
	h[0].send(t, h[1], numbered(1))
	w.AtFunc(50, func() { h[0].send(t, h[1], numbered(2)) })
	w.AtFunc(120, func() { h[0].Net().Partition([]*Port{h[0].Port}) })
	mustRun(t, w)
	if got := h[1].numbers(); !slices.Equal(got, []int{1}) {
		t.Errorf("got %v", got)
	}
}

func TestFlapTogglesLink(t *testing.T) {
	run := func(seed uint64, jitter time.Duration) (log []string) {
		w := New(Config{Seed: seed})
		h := star(t, w, 1, LinkConfig{})
		watch(h[0], &log)
		h[0].Flap(Flap{From: 100, DownFor: 10, UpFor: 30, Jitter: jitter, Times: 2})
		mustRun(t, w)
		return log
	}
	if got, want := run(1, 0), []string{"h0 false@100", "h0 true@110", "h0 false@140", "h0 true@150"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if a, b := run(1, 1000), run(1, 1000); !slices.Equal(a, b) || slices.Equal(a, run(2, 1000)) || len(a) != 4 {
		t.Errorf("with jitter: %v, %v: want the same for the same seed", a, b)
	}
}
