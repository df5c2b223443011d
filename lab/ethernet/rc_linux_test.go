package ethernet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/netns/uswitch"
	"github.com/fabrictest/fabrictest/verbs"
)

// joinedEnds connects an end of a device on each host, with PSN 0, so that events can match PSNs.
func joinedEnds(tb testing.TB, ha, hb *host, v6 bool) (a, b *providertest.End) {
	tb.Helper()
	open := func(h *host) *providertest.End {
		var dev *softroce.Device
		must.Do(tb, h.Do(func() (err error) {
			dev, err = softroce.OnUDP(udplink.Config{}, softroce.Config{Addrs: []netip.Addr{h.addr(v6)}})
			return err
		}))
		tb.Cleanup(func() { must.Do(tb, dev.Close()) })
		e := providertest.NewObjects(tb, dev, 1<<20)
		e.QP = must.Get(dev.CreateQP(e.QPInit(verbs.QPTypeRC)))(tb)
		return e
	}
	a, b = open(ha), open(hb)
	providertest.JoinRC(a, b)
	return a, b
}

// write is an RDMA WRITE of all memory.
func write(from, to *providertest.End) verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: from.SGL(0, len(from.Buf)), Remote: to.Remote(0)}
}

// TestRCRecoversFromExactEvents runs the whole stack over the switch: the
// impaired PSNs are known, and memory is correct in the end.
func TestRCRecoversFromExactEvents(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("IPv6 %v", v6), func(t *testing.T) {
			s, ha, hb := wired(t, 4200, nil)
			a, b := joinedEnds(t, ha, hb, v6)
			flow := impair.Flow(b.QP.QPN())
			once := func(psn uint32, do impair.Action) impair.Event {
				return impair.Event{Match: impair.Match{Flow: &flow, Seq: &psn}, Occurrence: 1, Action: do}
			}
			path := newPath(t, impair.Config{Events: []impair.Event{
				once(7, impair.Action{Kind: impair.Drop}),
				{Match: impair.Match{Flow: &flow, Seq: new(uint32(7))}, Occurrence: 2, Action: impair.Action{Kind: impair.Drop}}, // and its retransmission
				once(20, impair.Action{Kind: impair.CorruptBit, Bit: 1000}),
				once(40, impair.Action{Kind: impair.Duplicate}),
				once(60, impair.Action{Kind: impair.Reorder, Count: 2, Delay: time.Second}),
				once(80, impair.Action{Kind: impair.Truncate, Bytes: 100}),
				once(100, impair.Action{Kind: impair.SetField, Field: "bth.pkey", Value: 0x1234}), // with a correct ICRC
				once(120, impair.Action{Kind: impair.SetECN, ECN: 3}),
			}}, softroce.Dissector{})
			must.Do(t, s.SetHandler(0, uswitch.In, path))
			for i := range a.Buf {
				a.Buf[i] = byte(i * 31 >> 3)
			}
			a.Do(write(a, b))
			// The query also waits until the device's goroutine no longer uses the memory.
			counters := b.Dev.Counters()
			if !bytes.Equal(a.Buf, b.Buf) {
				t.Error("memory differs")
			}
			s.WhileQuiesced(func() {
				if fired := path.Pipe.Fired(); slices.Contains(fired, 0) || path.Pipe.Err() != nil {
					t.Errorf("events fired %v times: %v", fired, path.Pipe.Err())
				}
			})
			if st := s.Stats(); uswitch.SupportsUDPGSO() && st.Ports[0].In.GSOPackets == 0 {
				t.Error("no GSO packets were segmented")
			}
			for _, c := range counters {
				want, known := map[string]uint64{"drop_icrc": 2, "drop_pkey": 1, "ecn_marked": 1}[c.Name]
				if known && c.Value != want {
					t.Errorf("the receiver counts %s %d, want %d", c.Name, c.Value, want)
				}
			}
		})
	}
}

// BenchmarkRC writes 1 MiB messages over a plain and an impairing switch.
func BenchmarkRC(b *testing.B) {
	for name, spec := range map[string]*impair.Spec{"transparent": nil, "mark": {MarkPPM: 1}, "loss": {LossPPM: 10_000}} {
		b.Run(name, func(b *testing.B) {
			s, ha, hb := wired(b, 4200, func(c *uswitch.Config) {
				if spec != nil {
					for i := range c.Ports {
						c.Ports[i].In, c.Ports[i].Out = specPath(b, *spec), specPath(b, *spec)
					}
				}
			})
			x, y := joinedEnds(b, ha, hb, true)
			before := s.Stats().CPU
			b.SetBytes(int64(len(x.Buf)))
			for b.Loop() {
				x.Do(write(x, y))
			}
			b.ReportMetric(float64(len(x.Buf))*8*float64(b.N)/float64(s.Stats().CPU-before), "Gb/s/core")
			b.ReportMetric(float64(len(x.Buf))*8*float64(b.N)/float64(b.Elapsed()), "Gb/s")
			st := s.Stats().Ports
			b.ReportMetric(float64(st[0].In.Drops.Total()+st[1].In.Drops.Total()+st[0].Out.Drops.Total()+st[1].Out.Drops.Total()), "drops")
		})
	}
}

// BenchmarkSwitch sends GSO packets of RoCE-sized datagrams through an impairing switch and over a
// plain cable, and reports the CPU time of the switch.
func BenchmarkSwitch(b *testing.B) {
	for _, bench := range []struct {
		name string
		spec impair.Spec
		tap  bool
	}{
		{"transparent", impair.Spec{}, false},
		{"loss", impair.Spec{LossPPM: 10_000}, false},
		{"everything", impair.Spec{LossPPM: 10_000, DuplicatePPM: 10_000, ReorderPPM: 10_000, ReorderDelay: 20 * time.Microsecond, CorruptPPM: 10_000, MarkPPM: 10_000}, false},
		{"delay", impair.Spec{Delay: 20 * time.Microsecond}, false},
		{"capture", impair.Spec{}, true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			x, y := testutil.HostPair(b, 4200)
			plainA, plainB := &host{NS: x.NS, v4: x.V4, v6: x.V6}, &host{NS: y.NS, v4: y.V4, v6: y.V6}
			s, ha, hb := wired(b, 4200, func(c *uswitch.Config) {
				for i := range c.Ports {
					p := &c.Ports[i]
					if bench.spec != (impair.Spec{}) {
						p.In, p.Out = specPath(b, bench.spec), specPath(b, bench.spec)
					}
					if bench.tap {
						p.In = NewCapture(discard{}, CaptureOptions{}).Tap("x", passThrough{})
					}
				}
			})
			plain := newLoad(b, plainA, plainB)
			ours := newLoad(b, ha, hb)
			var cable, through float64
			var used time.Duration
			var bits float64
			for b.Loop() {
				cable, _ = plain.run(b, 200*time.Millisecond)
				before := s.Stats().CPU
				var n float64
				through, n = ours.run(b, 300*time.Millisecond)
				used += s.Stats().CPU - before
				bits += n
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(cable, "veth-Gb/s")
			b.ReportMetric(through, "Gb/s")
			b.ReportMetric(through/cable, "ratio")
			b.ReportMetric(bits/float64(used), "Gb/s/core")
		})
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

const (
	loadSize   = 4140 // 4 KiB and RoCEv2's headers
	loadBatch  = 15
	loadWindow = 1 << 20
)

// load is a stream of datagrams whose sender is at most a window ahead. Both
// ends block, to leave a CPU to the switch.
type load struct {
	a, b *socket
	to   netip.AddrPort

	mu    sync.Mutex
	moved *sync.Cond
	sent  uint64 // bytes
	done  uint64 // of sent: received or given up
	got   uint64
}

func newLoad(b *testing.B, from, to *host) *load {
	l := &load{a: openUDP(b, from, true, 0), b: openUDP(b, to, true, 4791)}
	l.to = l.b.addr
	l.moved = sync.NewCond(&l.mu)
	must.Do(b, unix.SetsockoptInt(l.b.fd, unix.SOL_UDP, unix.UDP_GRO, 1))
	tv := unix.NsecToTimeval((20 * time.Millisecond).Nanoseconds())
	must.Do(b, unix.SetsockoptTimeval(l.b.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
	return l
}

// run sends for a while and returns the rate in Gb/s and the bits received.
func (l *load) run(b *testing.B, d time.Duration) (gbps, bits float64) {
	l.got = 0
	ended, quiet := false, make(chan struct{})
	go func() {
		defer close(quiet)
		buf := make([]byte, 1<<16)
		for {
			n, _, errno := syscall.Syscall6(unix.SYS_RECVFROM, uintptr(l.b.fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0, 0)
			l.mu.Lock()
			if errno == 0 && n >= 8 {
				l.got += uint64(n)
				last := (int(n) - 1) / loadSize * loadSize
				if at := binary.BigEndian.Uint64(buf[last:]); at <= l.sent { // else it was corrupted
					l.done = max(l.done, at)
				}
			} else {
				l.done = l.sent
			}
			stop := ended && errno != 0
			l.moved.Signal()
			l.mu.Unlock()
			if stop {
				return
			}
		}
	}()
	buf := make([]byte, loadBatch*loadSize)
	start := time.Now()
	for time.Since(start) < d {
		l.mu.Lock()
		for l.sent-l.done > loadWindow {
			l.moved.Wait()
		}
		for i := range loadBatch {
			l.sent += loadSize
			binary.BigEndian.PutUint64(buf[i*loadSize:], l.sent)
		}
		l.mu.Unlock()
		l.a.send(b, l.to, buf, loadSize)
	}
	took := time.Since(start)
	l.mu.Lock()
	ended = true
	l.mu.Unlock()
	<-quiet
	bits = float64(l.got) * 8
	return bits / float64(took), bits
}
