package mpa

import (
	"runtime"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

// TestFailuresAreCountedOnce fails connections that share their counters for each reason, and
// expects one counter to increase.
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
		"frame cut short": {&n.Truncated, func() { c := NewResponder(0, cfg); give(c, []byte("MPA")); c.InputEOF(); drain(c) }},
		"FPDU cut short": {&n.Truncated, func() {
			c := responding(t, cfg, crcOn, crcOn)
			give(c, crcWrong[:9])
			c.InputEOF()
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
		"lost":    {&n.Lost, func() { c := NewResponder(0, cfg); c.Lost(); drain(c) }},
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

// TestIdleConnectionIsSmall limits the memory of an idle connection.
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
		must.Do(t, c.Accept(AcceptParam{}))
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

// rows has a test for every requirement of RFC 5044 and RFC 6581 that a connection alone can meet,
// by its number in the list of requirements.
var rows = testutil.JoinRequirements(fpduRows, markerRows, crcRows, streamRows, frameRows, startRows, errorRows, depthRows, rtrRows)

// elsewhere names the package that meets each other requirement.
var elsewhere = map[string]string{
	"rfc6581/5/1":    "the RTR is a message like any other: the engine sends it first",
	"rfc6581/9.2/11": "what an RTR names is checked, or not, where it is executed",
	"rfc6581/9.2/12": "an RTR counts as the message that it is, in DDP",
	"rfc6581/9.3/1":  "local failures are the engine's, and so is their Terminate",
}

// sections has the number of requirements of each section.
var sections = map[string]int{
	"rfc5044/3": 3, "rfc5044/4.1": 6, "rfc5044/4.2": 3, "rfc5044/4.3": 9, "rfc5044/4.4": 9, "rfc5044/4.5": 3,
	"rfc5044/5.1": 3, "rfc5044/5.2": 1, "rfc5044/6": 2, "rfc5044/7.1": 1, "rfc5044/7.1.1": 14, "rfc5044/7.1.2": 14,
	"rfc5044/7.2": 1, "rfc5044/8": 5, "rfc5044/C.1": 1,
	"rfc6581/5": 1, "rfc6581/6": 5, "rfc6581/8": 1, "rfc6581/9": 1, "rfc6581/9.1": 10, "rfc6581/9.2": 12,
	"rfc6581/9.3": 1, "rfc6581/10": 3, "rfc6581/12": 1,
}

func TestRequirements(t *testing.T) { rows.Run(t) }

func TestRequirementsAreComplete(t *testing.T) { rows.ExpectComplete(t, sections, elsewhere) }

// at passes octets to c at a time.
func at(c *Conn, now mono.Time, b []byte) []Event {
	c.Input(now, b)
	return drain(c)
}

// An FPDU with a corrupt length claims more octets than will arrive. With FPDUTimeout, the
// connection fails after that time without input.
func TestFPDUTimeout(t *testing.T) {
	const limit = 3 * time.Second
	good := stream(crcOn, pattern(18, 0))
	longer := append([]byte(nil), good...)
	longer[0] |= 1 // 256 octets more

	c := responding(t, Config{}, crcOn, crcOn)
	if es := at(c, 0, longer); len(es) > 0 || c.Deadline() != mono.Never {
		t.Errorf("without a limit: %+v, deadline %v", es, c.Deadline())
	}
	c = responding(t, Config{FPDUTimeout: -1}, crcOn, crcOn)
	if at(c, 0, longer); c.Deadline() != mono.Never {
		t.Errorf("a limit below 0 has a deadline at %v", c.Deadline())
	}

	c = responding(t, Config{FPDUTimeout: limit}, crcOn, crcOn)
	if c.Deadline() != mono.Never {
		t.Errorf("before any FPDU, the deadline is %v", c.Deadline())
	}
	wantULPDU(t, one(t, at(c, 1, good)), pattern(18, 0))
	if c.Deadline() != mono.Never {
		t.Errorf("between FPDUs, the deadline is %v", c.Deadline())
	}
	at(c, 10, good[:1])
	if want := mono.Time(10).Add(limit); c.Deadline() != want {
		t.Errorf("in an FPDU: deadline %v, want %v", c.Deadline(), want)
	}
	at(c, 20, good[1:9])
	if want := mono.Time(20).Add(limit); c.Deadline() != want {
		t.Errorf("after more octets: deadline %v, want %v", c.Deadline(), want)
	}
	wantULPDU(t, one(t, at(c, 30, good[9:])), pattern(18, 0))
	if c.Deadline() != mono.Never {
		t.Errorf("after the FPDU, the deadline is %v", c.Deadline())
	}

	at(c, 40, longer)
	c.Tick(c.Deadline() - 1)
	if es := drain(c); len(es) > 0 || !c.MaySend() {
		t.Errorf("before its time: %+v", es)
	}
	c.Tick(c.Deadline())
	failsWith(t, one(t, drain(c)), wire.TermMPAClosed, ErrStalledFPDU)
	if c.Deadline() != mono.Never || !c.MaySend() {
		t.Errorf("deadline %v, may send %v", c.Deadline(), c.MaySend())
	}
}

// Octets that arrive at the deadline count: the order of Tick and Input does not matter.
func TestInputAtDeadlinePreventsFPDUTimeout(t *testing.T) {
	good := stream(crcOn, pattern(18, 0))
	c := responding(t, Config{FPDUTimeout: time.Second}, crcOn, crcOn)
	at(c, 0, good[:5])
	c.Tick(c.Deadline())
	wantULPDU(t, one(t, at(c, mono.Time(time.Second), good[5:])), pattern(18, 0))
	if es := drain(c); len(es) > 0 {
		t.Errorf("%+v", es)
	}
}
