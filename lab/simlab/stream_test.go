package simlab

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab"
)

// streamTest is a stream between two hosts without NICs.
type streamTest struct {
	t     *testing.T
	world *sim.World
	a, b  *streamPort
	from  link.StreamLink
	to    link.StreamLink
	sent  []byte
	got   []byte
	when  []time.Duration // times of reads
	err   error           // the last error of Read
}

// newStreamTest connects a stream in the fabric of a scenario with two hosts.
func newStreamTest(t *testing.T, text string) *streamTest {
	t.Helper()
	s := parse(t, text+"nic: {provider: softiwarp}\nworkload: {kind: stream}\n")
	plan := must.Get(lab.NewPlan(s, lab.Options{}))(t)
	x := &streamTest{t: t, world: sim.New(sim.Config{Seed: plan.Seed})}
	t.Cleanup(x.world.Close)
	n := must.Get(sim.NewNet(x.world, sim.NetConfig{Cable: true}))(t)
	rail := make(map[netip.Addr]*streamPort)
	addrs := []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
	for i, p := range []**streamPort{&x.a, &x.b} {
		port, err := n.Attach(sim.PortConfig{Name: plan.Ports[i].Name, Addrs: addrs[i : i+1], Link: sim.LinkConfig{RateBps: 1e11, Latency: time.Microsecond, MTU: 4200}})
		if err != nil {
			t.Fatal(err)
		}
		*p = must.Get(newStreamPort(x.world, plan, i, rail))(t)
		(*p).StreamNet = port.StreamHost()
		rail[addrs[i]] = *p
	}
	l := must.Get(x.b.Listen(netip.AddrPortFrom(addrs[1], 7), 1))(t)
	x.from = must.Get(x.a.Dial(0, netip.AddrPortFrom(addrs[0], 0), l.Addr()))(t)
	x.run(time.Millisecond)
	if x.to = must.Get(l.Accept(x.world.Now()))(t); x.to == nil || !x.from.Connected(x.world.Now()) {
		t.Fatal("not connected")
	}
	return x
}

// run advances the time by d and reads all data that arrives.
func (x *streamTest) run(d time.Duration) {
	step := max(d/1000, 10*time.Microsecond)
	until := x.world.Now().Add(d)
	for x.world.Now().Before(until) {
		must.Do(x.t, x.world.RunUntil(x.world.Now().Add(step)))
		x.read()
		var ready [8]link.StreamReady
		x.a.Ready(ready[:])
	}
}

func (x *streamTest) read() {
	if x.to == nil {
		return
	}
	b := make([]byte, 1<<16)
	for x.err == nil {
		n, err := x.to.Read(x.world.Now(), b)
		if n == 0 && err == nil {
			return
		}
		if n > 0 {
			x.got = append(x.got, b[:n]...)
			x.when = append(x.when, time.Duration(x.world.Now()))
		}
		x.err = err
	}
}

// write writes n bytes; adjacent bytes differ.
func (x *streamTest) write(n int) error {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(len(x.sent) + i)
	}
	half := len(b) / 2
	k, err := x.from.Writev(x.world.Now(), [][]byte{b[:half], b[half:]}, false)
	x.sent = append(x.sent, b[:k]...)
	return err
}

func TestLostSegmentsAreRetransmitted(t *testing.T) {
	x := newStreamTest(t, "fabric: {kind: pair}\nimpair: [{loss: 20%}]\n")
	for range 50 {
		must.Do(t, x.write(20_000))
		x.run(100 * time.Microsecond)
	}
	x.run(10 * time.Second)
	if !bytes.Equal(x.got, x.sent) || len(x.sent) != 1_000_000 {
		t.Errorf("received %d bytes of %d, or other data", len(x.got), len(x.sent))
	}
	if lost := x.a.pipes[lab.Out].Counters().Lost; lost < 20 {
		t.Errorf("%d segments were lost", lost)
	}
}

func TestLossCostsFastRetransmitOrTimeout(t *testing.T) {
	for _, c := range []struct {
		bytes       int
		least, most time.Duration
	}{{4000, minRTO, minRTO + time.Millisecond}, {40_000, 0, time.Millisecond}} {
		x := newStreamTest(t, "fabric: {kind: pair}\nevents: [{on: [host0], offset: 0, do: drop}]\n")
		began := time.Duration(x.world.Now())
		must.Do(t, x.write(c.bytes))
		x.run(300 * time.Millisecond)
		if took := x.when[0] - began; took < c.least || took > c.most || !bytes.Equal(x.got, x.sent) {
			t.Errorf("%d bytes: the first arrived after %v, %d in all", c.bytes, took, len(x.got))
		}
		if x.a.drops[lab.Out] != 1 {
			t.Errorf("%d dropped", x.a.drops[lab.Out])
		}
	}
}

func TestDelayedSegmentDelaysLaterOnes(t *testing.T) {
	x := newStreamTest(t, "fabric: {kind: pair}\nimpair: [{reorder: 20%, reorder_delay: 1ms, duplicate: 20%, jitter: 200us}]\nevents: [{on: [host1], way: in, offset: 9000, do: delay, delay: 5ms}]\n")
	began := time.Duration(x.world.Now())
	must.Do(t, x.write(100_000))
	x.run(20 * time.Millisecond)
	if !bytes.Equal(x.got, x.sent) {
		t.Errorf("received %d bytes of %d, or other data", len(x.got), len(x.sent))
	}
	if took := x.when[len(x.when)-1] - began; took < 5*time.Millisecond {
		t.Errorf("the last arrived after %v", took)
	}
}

func TestCorruptedBytesAreDelivered(t *testing.T) {
	x := newStreamTest(t, "fabric: {kind: pair}\nevents: [{on: [host0], conn: 1, offset: 5000, do: corrupt_bit, bit: 6}, {on: [host0], conn: 2, offset: 1, do: reset}]\n")
	must.Do(t, x.write(10_000))
	x.run(time.Millisecond)
	x.sent[5000] ^= 1 << 6
	if !bytes.Equal(x.got, x.sent) {
		t.Error("received other data than was sent with one bit changed")
	}
	o := &lab.Observation{Plan: &lab.Plan{Scenario: parse(t, "fabric: {kind: pair}\nnic: {provider: softiwarp}\nevents: [{offset: 1, do: reset}, {offset: 1, do: reset}]\nworkload: {kind: stream}\n")}}
	o.CountStreamEvents(x.a.matchers[lab.Out])
	if o.Events[0] != 1 || o.Events[1] != 0 {
		t.Errorf("events occurred %v times", o.Events)
	}
}

func TestResetBreaksBothEnds(t *testing.T) {
	x := newStreamTest(t, "fabric: {kind: pair}\nevents: [{on: [host0], offset: 20000, do: reset}]\n")
	must.Do(t, x.write(10_000))
	x.run(time.Millisecond)
	if err := x.write(20_000); !errors.Is(err, link.ErrReset) {
		t.Errorf("Write returns %v", err)
	}
	x.run(time.Millisecond)
	if !errors.Is(x.err, link.ErrReset) || len(x.got) < 10_000 || len(x.got) > 20_000 {
		t.Errorf("Read returns %v after %d bytes", x.err, len(x.got))
	}
	if _, err := x.from.Read(x.world.Now(), make([]byte, 1)); !errors.Is(err, link.ErrReset) {
		t.Errorf("Read of the writing end returns %v", err)
	}
}

// Abort discards queued segments.
func TestCloseWriteFollowsQueuedSegments(t *testing.T) {
	const slow = "fabric: {kind: pair}\nimpair: [{delay: 1ms}]\n"
	x := newStreamTest(t, slow)
	must.Do(t, x.write(10_000))
	must.Do(t, x.from.CloseWrite(x.world.Now()))
	if err := x.write(1); !errors.Is(err, link.ErrWriteClosed) {
		t.Errorf("a write after CloseWrite: %v", err)
	}
	x.run(3 * time.Millisecond)
	if !errors.Is(x.err, io.EOF) || !bytes.Equal(x.got, x.sent) {
		t.Errorf("%d bytes, then %v", len(x.got), x.err)
	}
	x = newStreamTest(t, slow)
	must.Do(t, x.write(10_000))
	must.Do(t, x.from.Abort(x.world.Now()))
	x.run(3 * time.Millisecond)
	if !errors.Is(x.err, link.ErrReset) || len(x.got) > 0 {
		t.Errorf("%d bytes, then %v", len(x.got), x.err)
	}
}

func TestStreamImpairmentsCanBeReplaced(t *testing.T) {
	x := newStreamTest(t, "fabric: {kind: pair}\n")
	must.Do(t, x.write(1000))
	x.run(100 * time.Microsecond)
	later := parse(t, "fabric: {kind: pair}\nimpair: [{loss: 100%}]\nworkload: {kind: stream}\n")
	plan := must.Get(lab.NewPlan(later, lab.Options{}))(t)
	must.Do(t, x.a.pipes[lab.Out].SetSpecs(plan.Ports[0].Out.Specs))
	must.Do(t, x.write(1000))
	x.run(time.Second)
	if len(x.got) != 1000 {
		t.Errorf("%d bytes arrived", len(x.got))
	}
	must.Do(t, x.a.pipes[lab.Out].SetSpecs(nil))
	x.run(2 * time.Second)
	if !bytes.Equal(x.got, x.sent) {
		t.Errorf("%d bytes arrived at last", len(x.got))
	}
}

var _ link.StreamNet = (*streamPort)(nil)
