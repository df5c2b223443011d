package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

func TestConfigRefusesWhatCannotWork(t *testing.T) {
	for name, c := range map[string]Config{
		"negative limit":   {Limits: nic.Limits{QPs: -1}},
		"too many regions": {Limits: nic.Limits{MRs: 1 << 24}},
		"QP numbers":       {FirstQPN: 1<<24 - 10},
		"revision":         {MPA: mpa.Config{MaxRevision: 3}},
		"model":            {MPA: mpa.Config{MaxRevision: 1, PeerToPeer: true}},
	} {
		if _, err := New(c); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	n, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if c := n.Config(); c.FirstQPN != 0x11 || c.CloseTimeout != 5*time.Second || c.Limits.RdAtomic != 128 || c.MPA.MaxIRD != 128 || c.KeySecret == 0 {
		t.Errorf("%+v", c)
	}
}

func TestTimersComeInOrder(t *testing.T) {
	n, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	var h timerHeap
	conns := make([]*Conn, 100)
	for i := range conns {
		conns[i] = n.Incoming()
		h.set(conns[i], mono.Time(i*37%100+1))
	}
	for i := 0; i < 100; i += 3 {
		h.set(conns[i], mono.Never)
		h.set(conns[i], mono.Never)
	}
	for i := 1; i < 100; i += 3 {
		h.set(conns[i], mono.Time(200+i))
	}
	last, count := mono.Time(0), 0
	for h.next() != mono.Never {
		at := h.next()
		if h.due(at-1) != nil {
			t.Fatal("before its time")
		}
		c := h.due(at)
		if c == nil || at < last || c.heapIndex != -1 {
			t.Fatalf("%v after %v", at, last)
		}
		last = at
		count++
	}
	if count != 66 {
		t.Errorf("%d of 66 timers", count)
	}
}

func TestCountersHaveNamesOfTheirOwn(t *testing.T) {
	a, b := newHost(t), newHost(t)
	p := connect(t, a, b)
	p.ca.Disconnect(0)
	p.run()
	seen := map[string]uint64{}
	for _, c := range a.nic.Counters() {
		if _, twice := seen[c.Name]; twice {
			t.Errorf("two counters are called %s", c.Name)
		}
		seen[c.Name] = c.Value
	}
	if seen["conns"] != 1 || seen["conns_established"] != 1 || seen["conns_closed"] != 1 || seen["conns_failed"] != 0 || seen["mpa_requests_sent"] != 1 {
		t.Errorf("%v", seen)
	}
}
