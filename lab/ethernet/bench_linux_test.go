package ethernet

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// BenchmarkSwitch sends GSO packets of RoCE-sized datagrams through an
// impairing switch and over a plain cable, and reports the CPU time of the
// switch.
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
						p.In = NewCapture(discard{}, CaptureOptions{}).Tap("x", nil)
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
