package uswitch

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

// numbered returns n concatenated datagrams of size bytes, each starting with its number.
func numbered(n, size int) []byte {
	b := make([]byte, n*size)
	for i := range n {
		for j := range size {
			b[i*size+j] = byte(i + j*j)
		}
		b[i*size] = byte(i)
	}
	return b
}

// pick returns a FrameHandler that drops the frames whose first payload byte keep rejects.
func pick(keep func(first byte) bool) FrameHandler {
	return handlerFunc(func(f Frame, emit Emit) {
		if l, ok := parse(f.Bytes); !ok || l.payload == len(f.Bytes) || keep(f.Bytes[l.payload]) {
			emit(0, f)
		}
	})
}

func TestDatagramsArriveUnchanged(t *testing.T) {
	at, hosts := cables(t, 2, roceMTU)
	s := run(t, at, 2, nil)
	everything := pick(func(byte) bool { return true })
	for _, path := range []FrameHandler{nil, everything} {
		must.Do(t, s.SetHandler(0, In, path))
		for _, v6 := range []bool{false, true} {
			a, b := openUDP(t, hosts[0].do, hosts[0].addr(v6)), openUDP(t, hosts[1].do, hosts[1].addr(v6))
			for _, n := range []struct{ count, size int }{{1, 1}, {1, 4000}, {10, 1000}, {40, 100}, {15, 4140}, {2, 17}} {
				sent := numbered(n.count, n.size)
				segment := n.size
				if n.count == 1 {
					segment = 0
				}
				must.Do(t, a.send(b.addr, sent, segment))
				var got []byte
				for range n.count {
					d := b.receive()
					if len(d) != n.size {
						t.Fatalf("path %v, IPv6 %v, %v: a datagram of %d bytes", path != nil, v6, n, len(d))
					}
					got = append(got, d...)
				}
				if !bytes.Equal(got, sent) {
					t.Errorf("path %v, IPv6 %v, %v: wrong bytes arrived", path != nil, v6, n)
				}
			}
		}
	}
}

// The kernel segments coalesced packets and computes the checksums: the received frames verify
// headers, identifications and sums.
func TestKernelAcceptsGSOMetadata(t *testing.T) {
	const count, size = 15, 1000
	lost := []byte{3, 4, 9}
	for _, v6 := range []bool{false, true} {
		for _, delayed := range []bool{false, true} {
			t.Run(fmt.Sprintf("IPv6 %v, delayed %v", v6, delayed), func(t *testing.T) {
				at, hosts := cables(t, 2, 1500)
				computeInKernel(t, at, portName(1))
				run(t, at, 2, func(c *Config) {
					c.Ports[0].In = pick(func(first byte) bool { return !slices.Contains(lost, first) })
					if delayed {
						c.Ports[1].Out = delay(100 * time.Microsecond)
					}
				})
				a, b := openUDP(t, hosts[0].do, hosts[0].addr(v6)), openUDP(t, hosts[1].do, hosts[1].addr(v6))
				arriving := openTap(t, hosts[1])
				sent := numbered(count, size)
				must.Do(t, a.send(b.addr, sent, size))
				frames := arriving.frames(count - len(lost))
				if len(frames) != count-len(lost) {
					t.Fatalf("%d frames arrived, want %d", len(frames), count-len(lost))
				}
				i := 0
				for _, f := range frames {
					for slices.Contains(lost, byte(i)) {
						i++
					}
					l, ok := parse(f)
					if why := verify(f); !ok || why != "" {
						t.Errorf("frame %d: %s", i, why)
						continue
					}
					if !bytes.Equal(f[l.payload:], sent[i*size:(i+1)*size]) {
						t.Errorf("frame %d: wrong bytes", i)
					}
					if !v6 && ident(f) != i {
						t.Errorf("frame %d: identification %d, want %d", i, ident(f), i)
					}
					if d := b.receive(); !bytes.Equal(d, sent[i*size:(i+1)*size]) {
						t.Errorf("datagram %d was not received", i)
					}
					i++
				}
			})
		}
	}
}

func TestSwitchLearnsFloodsAndBlocks(t *testing.T) {
	at, hosts := cables(t, 3, 1500)
	s := run(t, at, 3, nil)
	taps := []*tap{openTap(t, hosts[0]), openTap(t, hosts[1]), openTap(t, hosts[2])}
	// Addresses other than the hosts', which the switch may have learnt.
	station := func(i int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 9, byte(i)} }
	frame := func(from int, to net.HardwareAddr, what byte) []byte {
		b := append(slices.Concat(to, station(from)), 0x88, 0xb5, what) // experimental EtherType
		return append(b, make([]byte, 60)...)
	}
	// A broadcast follows each frame: when host 2 has it, the frame has been forwarded.
	send := func(from, to int) []byte {
		b := frame(from, station(to), byte(to))
		taps[from].send(t, b)
		taps[from].send(t, frame(from, broadcast, 0xff))
		return b
	}
	isFence := func(b []byte) bool { return b[etherLen] == 0xff }
	expectAt := func(what string, b []byte, want ...int) {
		t.Helper()
		last := taps[2].frames(1)
		for len(last) > 0 && !isFence(last[len(last)-1]) {
			last = append(last, taps[2].frames(1)...)
		}
		for i, tap := range taps {
			got := last
			if i < 2 {
				got = tap.waiting()
			}
			got = slices.DeleteFunc(got, isFence)
			n := 0
			if slices.Contains(want, i) {
				n = 1
			}
			if len(got) != n || (n == 1 && !bytes.Equal(got[0], b)) {
				t.Errorf("%s: host %d received %d frames, want %d", what, i, len(got), n)
			}
		}
	}
	expectAt("unknown", send(0, 1), 1, 2)
	expectAt("answer", send(1, 0), 0)
	expectAt("known", send(0, 1), 1)
	must.Do(t, s.SetPort(1, false))
	expectAt("down", send(0, 1), 2) // flushed from the FDB, and flooded
	must.Do(t, s.SetPort(1, true))
	expectAt("up", send(0, 1), 1, 2)
	st := s.Stats()
	if st.Ports[1].Out.Drops.Down == 0 {
		t.Errorf("drops %+v", st.Ports[1].Out.Drops)
	}
}

func TestSetHandlerDuringTraffic(t *testing.T) {
	at, hosts := cables(t, 2, 1500)
	s := run(t, at, 2, nil)
	a, b := openUDP(t, hosts[0].do, hosts[0].v6), openUDP(t, hosts[1].do, hosts[1].v6)
	stop := make(chan struct{})
	done := make(chan stream)
	go func() { done <- load(t, a, b, 1000, 20, 1<<18, 300*time.Millisecond) }()
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			var path FrameHandler
			switch i % 3 {
			case 1:
				path = newLossy(uint64(i), 100_000)
			case 2:
				path = delay(50 * time.Microsecond)
			}
			if s.SetHandler(i%2, Direction(i/2%2), path) != nil {
				return
			}
			s.Stats()
		}
	}()
	r := <-done
	close(stop)
	if r.received == 0 || r.received > r.sent {
		t.Errorf("%d of %d arrived", r.received, r.sent)
	}
}

func TestHandlerDelayIsApplied(t *testing.T) {
	at, hosts := cables(t, 2, 1500)
	const by = 300 * time.Microsecond
	run(t, at, 2, func(c *Config) { c.Ports[0].In = delay(by) })
	a, b := openUDP(t, hosts[0].do, hosts[0].v6), openUDP(t, hosts[1].do, hosts[1].v6)
	var took []time.Duration
	for range 20 { // retried: the machine may be busy
		took = took[:0]
		for range 100 {
			start := time.Now()
			must.Do(t, a.send(b.addr, []byte("ping"), 0))
			if b.receive() == nil {
				t.Fatal("lost")
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		t.Logf("delay %v: shortest %v, median %v, longest %v", by, took[0], took[50], took[99])
		if took[0] < by {
			t.Fatalf("a frame took %v, want %v", took[0], by)
		}
		if took[10] <= by+2*time.Millisecond {
			return
		}
	}
	t.Errorf("nine of ten frames took %v or more, want %v", took[10], by)
}

func TestIdleSwitchUsesNoCPU(t *testing.T) {
	at, _ := cables(t, 2, 1500)
	s := run(t, at, 2, nil)
	time.Sleep(50 * time.Millisecond)
	before := s.Stats().CPU
	time.Sleep(200 * time.Millisecond)
	if used := s.Stats().CPU - before; used > 10*time.Millisecond {
		t.Errorf("used %v of CPU time in 200 ms without traffic", used)
	}
}
