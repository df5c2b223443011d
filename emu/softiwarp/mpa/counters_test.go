package mpa

import (
	"runtime"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// TestFailuresAreCountedOnce fails connections that share their counters in
// every way, and looks for the one that has moved.
func TestFailuresAreCountedOnce(t *testing.T) {
	var n Counters
	cfg := plainConfig()
	cfg.Counters = &n
	deep := Config{Counters: &n, PeerToPeer: true, RTR: RTRWrite}
	crcWrong := stream(crcOn, pattern(18, 0))
	crcWrong[5] ^= 1
	for name, c := range map[string]struct {
		counter *uint64
		fail    func()
	}{
		"no MPA":          {&n.BadFrames, func() { give(NewResponder(0, cfg), []byte("GET")) }},
		"revision":        {&n.BadRevisions, func() { give(NewResponder(0, cfg), edited(request(), 17, 9)) }},
		"too much IRD":    {&n.BadNegotiations, func() { initiates(t, deep, enhance(reply(), wire.Enhanced{ORD: 9})) }},
		"no RTR":          {&n.BadNegotiations, func() { initiates(t, deep, enhance(reply(), withRTR(RTRSend, 0))) }},
		"wrong model":     {&n.BadNegotiations, func() { initiates(t, deep, enhance(reply(), wire.Enhanced{})) }},
		"CRC":             {&n.BadCRCs, func() { give(responding(t, cfg, crcOn, crcOn), crcWrong) }},
		"marker":          {&n.BadMarkers, func() { give(responding(t, cfg, marked1, crcOn), corrupt(2, []byte{4, 0}, pattern(18, 0))) }},
		"frame cut short": {&n.Truncated, func() { c := NewResponder(0, cfg); give(c, []byte("MPA")); c.InputEOF(0); drain(c) }},
		"FPDU cut short": {&n.Truncated, func() {
			c := responding(t, cfg, crcOn, crcOn)
			give(c, crcWrong[:9])
			c.InputEOF(0)
			drain(c)
		}},
		"FPDU that does not go on": {&n.Timeouts, func() {
			stalls := cfg
			stalls.FPDUTimeout = time.Second
			c := responding(t, stalls, crcOn, crcOn)
			give(c, crcWrong[:9])
			c.Tick(c.Deadline())
			drain(c)
		}},
		"lost":    {&n.Lost, func() { c := NewResponder(0, cfg); c.Lost(0); drain(c) }},
		"timeout": {&n.Timeouts, func() { c := NewResponder(0, cfg); c.Tick(c.Deadline()); drain(c) }},
	} {
		before := n
		c.fail()
		if *c.counter--; n.failures() != before.failures() {
			t.Errorf("%s: counted %+v, then %+v", name, before, n)
		}
	}
	if n.failures() != [7]uint64{} {
		t.Errorf("%+v", n)
	}
}

func (n *Counters) failures() [7]uint64 {
	return [7]uint64{n.BadFrames, n.BadRevisions, n.BadNegotiations, n.BadCRCs, n.BadMarkers, n.Truncated, n.Lost + n.Timeouts}
}

// TestIdleConnectionIsSmall bounds what a connection costs that is open and has
// nothing to do.
func TestIdleConnectionIsSmall(t *testing.T) {
	const many = 1000
	var counters Counters
	keep := make([]*Conn, 0, many)
	octets := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := octets()
	for range many {
		c := NewResponder(0, Config{Counters: &counters})
		f := enhance(request(pattern(200, 0)...), wire.Enhanced{IRD: 1, ORD: 1})
		give(c, f.Append(nil))
		must.Do(t, c.Accept(0, AcceptParam{}))
		written(c)
		give(c, stream(crcOn, pattern(18, 0)))
		c.Send(pattern(18, 0), nil)
		written(c)
		keep = append(keep, c)
	}
	each := int(octets()-before) / many
	runtime.KeepAlive(keep)
	t.Logf("%d octets each", each)
	if each > 3<<10 {
		t.Errorf("an idle connection keeps %d octets", each)
	}
}
