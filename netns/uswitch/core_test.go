package uswitch

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

// rig is a core without sockets that records the frames it sends.
type rig struct {
	*core
	tb  testing.TB
	out [][][]byte // by port
}

func newRig(tb testing.TB, n int, change func(*Config)) *rig {
	tb.Helper()
	cfg := Config{}
	for i := range n {
		cfg.Ports = append(cfg.Ports, PortConfig{Interface: portName(i)})
	}
	if change != nil {
		change(&cfg)
	}
	cfg = must.Get(cfg.withDefaults())(tb)
	r := &rig{tb: tb, out: make([][][]byte, n)}
	r.core = newCore(&cfg, func(p *port, ms []message) {
		for i := range ms {
			b := append([]byte(nil), ms[i].headers[:ms[i].headerLen]...)
			for _, piece := range ms[i].iovs[:ms[i].iovCount] {
				b = append(b, piece...)
			}
			r.out[p.index] = append(r.out[p.index], b)
		}
	})
	return r
}

func portName(i int) string { return "port" + string(rune('0'+i)) }

// offer passes a frame to a port and returns how many frames each port sent.
func (r *rig) offer(port int, b []byte) []int {
	r.receive(r.ports[port], &packet{bytes: b})
	r.flush()
	return r.sent()
}

func (r *rig) sent() []int {
	n := make([]int, len(r.out))
	for i := range r.out {
		n[i] = len(r.out[i])
		r.out[i] = nil
	}
	return n
}

// bare returns a frame without a known protocol.
func bare(from, to net.HardwareAddr) []byte {
	return append(append(append([]byte(nil), to...), from...), make([]byte, 60)...)
}

func (r *rig) expect(what string, got []int, want ...int) {
	r.tb.Helper()
	for i := range want {
		if got[i] != want[i] {
			r.tb.Errorf("%s: frames by port %v, want %v", what, got, want)
			return
		}
	}
}

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func TestSwitchLearnsAddresses(t *testing.T) {
	r := newRig(t, 3, nil)
	r.expect("unknown", r.offer(0, bare(macA, macB)), 0, 1, 1)
	r.expect("answer", r.offer(1, bare(macB, macA)), 1, 0, 0)
	r.expect("known", r.offer(0, bare(macA, macB)), 0, 1, 0)
	r.expect("broadcast", r.offer(0, bare(macA, broadcast)), 0, 1, 1)
	r.expect("multicast", r.offer(2, bare(macC, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1})), 1, 1, 0)
	r.expect("to itself", r.offer(0, bare(macC, macA)), 0, 0, 0)
	r.expect("link-local group address", r.offer(0, bare(macA, net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 0})), 0, 0, 0)

	r.offer(2, bare(macB, macA)) // B has moved
	r.expect("moved", r.offer(0, bare(macA, macB)), 0, 0, 1)
	r.offer(1, bare(macB, macA)) // and back
	r.expect("moved back", r.offer(0, bare(macA, macB)), 0, 1, 0)
	if st := r.stats(); st.Flooded != 3 || st.Addresses != 3 {
		t.Errorf("flooded %d, %d addresses", st.Flooded, st.Addresses)
	}
}

func TestAddressIsLearntAgainAfterPortWasDown(t *testing.T) {
	r := newRig(t, 3, nil)
	r.offer(1, bare(macB, macA))
	r.setDown(r.ports[1], PortDown)
	r.ports[1].state = PortUp
	r.expect("forgotten", r.offer(0, bare(macA, macB)), 0, 1, 1)
	r.offer(1, bare(macB, macA))
	r.expect("learnt again", r.offer(0, bare(macA, macB)), 0, 1, 0)
}

func TestStaticAddressesAreNotRelearnt(t *testing.T) {
	r := newRig(t, 3, func(c *Config) { c.Ports[1].Addresses = []net.HardwareAddr{macB} })
	r.expect("given", r.offer(0, bare(macA, macB)), 0, 1, 0)
	r.offer(2, bare(macB, macA)) // a spoofed source
	r.expect("given still", r.offer(0, bare(macA, macB)), 0, 1, 0)
}

func TestAddressTableIsBounded(t *testing.T) {
	r := newRig(t, 3, func(c *Config) {
		c.MaxAddresses = 10
		c.Ports[2].Addresses = []net.HardwareAddr{macC}
	})
	for i := range 1000 {
		from := net.HardwareAddr{2, 9, 0, 0, 0, 0}
		binary.BigEndian.PutUint16(from[4:], uint16(i))
		r.offer(0, bare(from, macC))
	}
	if st := r.stats(); st.Addresses != 11 || st.LearnFailures != 990 {
		t.Errorf("%d addresses, %d not learnt", st.Addresses, st.LearnFailures)
	}
	r.expect("beyond the table", r.offer(1, bare(macB, net.HardwareAddr{2, 9, 0, 0, 1, 0})), 1, 0, 1)
}

func TestTwoPortSwitchForwardsWithoutLearning(t *testing.T) {
	r := newRig(t, 2, nil)
	r.expect("wire", r.offer(0, bare(macA, macA)), 0, 1)
	r.expect("wire", r.offer(1, bare(macA, net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 0})), 1, 0)
	if st := r.stats(); st.Addresses != 0 {
		t.Errorf("%d addresses", st.Addresses)
	}
}

// Offered counts frames whether they are dropped or not.
func TestDownPortsCountDrops(t *testing.T) {
	r := newRig(t, 3, nil)
	r.setDown(r.ports[2], PortDown)
	r.expect("down", r.offer(1, bare(macB, broadcast)), 1, 0, 0)
	r.expect("from a port that is down", r.offer(2, bare(macC, broadcast)), 0, 0, 0)
	st := r.stats()
	if st.Ports[1].Out.Drops != (Drops{}) || st.Ports[2].Out.Drops != (Drops{Down: 1}) || st.Ports[2].In.Drops != (Drops{Down: 1}) {
		t.Errorf("drops %+v", st.Ports)
	}
	if n := st.Ports[2].Out.Drops.Total(); n != 1 {
		t.Errorf("Total %d", n)
	}
	size := uint64(len(bare(macA, macB)))
	for i, want := range [][2]uint64{{0, 1}, {1, 0}, {1, 1}} { // in and out
		p := &st.Ports[i]
		if p.In.Offered != want[0] || p.In.OfferedBytes != want[0]*size || p.Out.Offered != want[1] || p.Out.OfferedBytes != want[1]*size {
			t.Errorf("port %d: in %+v, out %+v, want %v", i, p.In, p.Out, want)
		}
	}
}

func TestSetDownDropsDelayedFrames(t *testing.T) {
	r := newRig(t, 3, func(c *Config) { c.Ports[0].In, c.Ports[1].Out = delay(10), delay(10) })
	r.offer(0, bare(macA, macB))
	r.now = 10
	r.runTimers() // past the first delay, within the second
	r.flush()
	r.expect("after the first delay", r.sent(), 0, 0, 1)
	r.setDown(r.ports[1], PortDown)
	r.ports[1].state = PortUp
	r.now = 30
	r.runTimers()
	r.flush()
	r.expect("lost", r.sent(), 0, 0, 0)
	if st := r.stats(); st.Ports[1].Out.Drops.Down != 1 || st.DelayedFrames != 0 {
		t.Errorf("%+v", st)
	}
}

func TestFramePassesHandlersOfBothPorts(t *testing.T) {
	r := newRig(t, 2, func(c *Config) { c.Ports[0].In, c.Ports[1].Out = delay(10), delay(5) })
	r.offer(0, bare(macA, macB))
	for _, step := range []struct {
		now  time.Duration
		sent int
	}{{9, 0}, {10, 0}, {14, 0}, {15, 1}} {
		if r.now = step.now; r.deadline() <= r.now {
			r.runTimers()
		}
		r.flush()
		r.expect("at "+step.now.String(), r.sent(), 0, step.sent)
	}
	if r.deadline() != Never {
		t.Errorf("deadline %v", r.deadline())
	}
}

// holder is a FrameHandler that holds every frame until its timer.
type holder struct {
	until time.Duration
	held  [][]byte
}

func (k *holder) Apply(_ time.Duration, f Frame, _ Emit) {
	k.held = append(k.held, bytes.Clone(f.Bytes))
}

func (k *holder) NextTimer() time.Duration {
	if len(k.held) == 0 {
		return Never
	}
	return k.until
}

func (k *holder) HandleTimer(_ time.Duration, emit Emit) {
	for _, b := range k.held {
		emit(0, Frame{Bytes: b})
	}
	k.held = nil
}

func TestHandlerTimerFires(t *testing.T) {
	r := newRig(t, 2, func(c *Config) { c.Ports[0].In = &holder{until: 100} })
	r.offer(0, bare(macA, macB))
	r.offer(0, bare(macA, macB))
	if r.deadline() != 100 {
		t.Fatalf("deadline %v", r.deadline())
	}
	r.now = 100
	r.runTimers()
	r.flush()
	r.expect("after the timer", r.sent(), 0, 2)
	if r.deadline() != Never {
		t.Errorf("deadline %v", r.deadline())
	}
}

func TestHandlerOutputIsBounded(t *testing.T) {
	r := newRig(t, 2, func(c *Config) {
		c.Ports[0].In = handlerFunc(func(f Frame, emit Emit) {
			for range maxMessages + 100 {
				emit(0, f)
			}
		})
	})
	r.expect("copies", r.offer(0, bare(macA, macB)), 0, maxMessages)
	if d := r.stats().Ports[1].Out.Drops; d != (Drops{QueueFull: 100}) {
		t.Errorf("drops %+v", d)
	}
}

func TestHandlerMayEmitLongestFrame(t *testing.T) {
	r := newRig(t, 2, func(c *Config) {
		c.Ports[0].In = handlerFunc(func(_ Frame, emit Emit) {
			emit(0, Frame{Bytes: make([]byte, maxFrame)})
			emit(0, Frame{Bytes: make([]byte, maxFrame+1)})
		})
	})
	r.offer(0, bare(macA, macB))
	if d := r.stats().Ports[0].In.Drops; d != (Drops{Malformed: 1}) {
		t.Errorf("drops %+v", d)
	}
}

func TestDelayedFramesAreBounded(t *testing.T) {
	r := newRig(t, 2, func(c *Config) {
		c.Ports[0].In = delay(time.Second)
		c.MaxDelayedFrames = 100
	})
	for range 150 {
		r.offer(0, bare(macA, macB))
	}
	st := r.stats()
	if st.DelayedFrames != 100 || st.DelayedFramesMax != 100 || st.Ports[0].In.Drops != (Drops{QueueFull: 50}) {
		t.Errorf("%+v", st)
	}
	r.now = time.Second
	r.runTimers()
	r.flush()
	r.expect("after the delay", r.sent(), 0, 100)
	if st := r.stats(); st.DelayedFrames != 0 || st.DelayedBytes != 0 {
		t.Errorf("%+v", st)
	}
}

func TestFramesLargerThanMTUAreDropped(t *testing.T) {
	r := newRig(t, 2, nil)
	r.ports[1].mtu = 1500
	exact, over := make([]byte, 1514), make([]byte, 1515)
	tagged := make([]byte, 1518)
	tagged[12] = 0x81
	r.expect("exact", r.offer(0, exact), 0, 1)
	r.expect("tagged", r.offer(0, tagged), 0, 1)
	r.expect("over", r.offer(0, over), 0, 0)
	r.receive(r.ports[0], gsoPacket(t, kinds[0], 1472, 14720, 0))
	r.receive(r.ports[0], gsoPacket(t, kinds[0], 1473, 14730, 0))
	r.flush()
	r.expect("GSO packets", r.sent(), 0, 1)
	if d := r.stats().Ports[1].Out.Drops; d != (Drops{TooBig: 11}) {
		t.Errorf("drops %+v", d)
	}
}

func TestHandlerSeesSegmentsOfGSOPacket(t *testing.T) {
	for _, k := range kinds {
		var seen [][]byte
		r := newRig(t, 3, func(c *Config) {
			c.Ports[0].In = spy(func(f Frame) { seen = append(seen, completed(f.Bytes)) })
		})
		p := gsoPacket(t, k, 1000, 9500, tcpPSH)
		want := segmentsOf(t, k, 1000, p, tcpPSH)
		r.receive(r.ports[0], p)
		r.flush()
		if len(seen) != len(want) {
			t.Fatalf("%s: %d frames seen, want %d", k.name, len(seen), len(want))
		}
		for i := range seen {
			if !bytes.Equal(seen[i], want[i]) || verify(seen[i]) != "" {
				t.Errorf("%s: frame %d is not as on the wire: %s", k.name, i, verify(seen[i]))
			}
		}
		// Unchanged frames are flooded and coalesced.
		for q := 1; q < 3; q++ {
			if len(r.out[q]) != 1 || !bytes.Equal(r.out[q][0], p.bytes) {
				t.Errorf("%s: port %d sent %d messages", k.name, q, len(r.out[q]))
			}
		}
	}
}

// spy returns a FrameHandler that calls see for every frame and forwards it.
func spy(see func(Frame)) FrameHandler {
	return handlerFunc(func(f Frame, emit Emit) { see(f); emit(0, f) })
}

func TestTunnelChecksumIsCompleted(t *testing.T) {
	inner := packetSpec{kind: kinds[0], payload: []byte("inner")}.frame(t)
	want := packetSpec{kind: kinds[1], payload: inner}.frame(t)
	l, _ := parse(want)
	at := l.payload
	il, _ := parse(inner)
	partial(t, inner)
	b := packetSpec{kind: kinds[1], payload: inner}.frame(t)
	copy(b[l.l4+6:], want[l.l4+6:l.l4+8]) // the outer checksum covers the completed packet
	var seen Frame
	r := newRig(t, 2, func(c *Config) { c.Ports[1].Out = spy(func(f Frame) { seen = f }) })
	r.receive(r.ports[0], &packet{bytes: b, vnet: vnetHeader{flags: vnetNeedsChecksum, csumStart: uint16(at + il.l4), csumOffset: 6}})
	if seen.ChecksumPartial || !bytes.Equal(seen.Bytes, want) {
		t.Errorf("partial %v\n%x\nwant\n%x", seen.ChecksumPartial, seen.Bytes, want)
	}
}

func TestForwardingDoesNotAllocate(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"transparent": nil,
		"loss":        func(c *Config) { c.Ports[0].In, c.Ports[1].Out = newLossy(1, 10_000), newLossy(2, 10_000) },
		"delay":       func(c *Config) { c.Ports[1].Out = delay(10) },
	} {
		r := newRig(t, 3, change)
		r.send = func(*port, []message) {}
		p := gsoPacket(t, kinds[1], 1000, 30_000, 0)
		run := func() {
			r.receive(r.ports[0], p)
			r.flush()
			r.now += 100
			r.runTimers()
			r.flush()
		}
		run()
		if n := testing.AllocsPerRun(200, run); n != 0 {
			t.Errorf("%s: %v allocations for a GSO packet", name, n)
		}
	}
}

// newReusingHandler returns a FrameHandler that emits frames once, twice, from a buffer that it
// reuses, or not at all, in turn.
func newReusingHandler() FrameHandler {
	var buf []byte
	n := 0
	return handlerFunc(func(f Frame, emit Emit) {
		switch n++; n % 4 {
		case 1:
			emit(0, f)
		case 2:
			emit(0, f)
			emit(0, f)
		case 3:
			buf = append(buf[:0], f.Bytes...)
			emit(0, Frame{buf, f.ChecksumPartial})
			clear(buf)
		}
	})
}

// A large GSO packet is sent in several flushes while it is being segmented,
// and a FrameHandler may reuse its buffer as soon as emit returns.
func TestFramesAreIntactUntilSent(t *testing.T) {
	for _, k := range kinds {
		r := newRig(t, 2, func(c *Config) { c.Ports[0].In = newReusingHandler() })
		p := gsoPacket(t, k, 100, 30_000, 0)
		var want, got [][]byte
		for i, b := range segmentsOf(t, k, 100, p, 0) {
			want = append(want, slices.Repeat([][]byte{b}, []int{1, 2, 1, 0}[i%4])...)
		}
		r.send = func(_ *port, ms []message) {
			for i := range ms {
				got = append(got, segmentMessage(t, &ms[i])...)
			}
		}
		r.receive(r.ports[0], p)
		r.flush()
		if len(got) != len(want) {
			t.Fatalf("%s: %d frames, want %d", k.name, len(got), len(want))
		}
		for i := range got {
			if !bytes.Equal(completed(got[i]), want[i]) {
				t.Fatalf("%s: frame %d was sent as\n%x\nwant\n%x", k.name, i, got[i], want[i])
			}
		}
	}
}
