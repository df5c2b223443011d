package udplink

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/linktest"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

func TestPacketLink(t *testing.T) {
	for _, f := range families {
		for _, o := range []Offload{OffloadAuto, OffloadOff} {
			t.Run(f.name+"/offloads "+o.String(), func(t *testing.T) {
				linktest.TestPacketLink(t, func(t *testing.T) linktest.Bench {
					open := func() *Link {
						return openLink(t, Config{Local: netip.AddrPortFrom(f.addr, 0), MTU: 9000, GSO: o, GRO: o, PatchIPID: noFix})
					}
					a, b := open(), open()
					// Loopback delivers within the system call that sends, or soon
					// after on a busy machine.
					settle := func() mono.Time { b.WaitReadable(2 * time.Millisecond); return 1 }
					return linktest.Bench{A: a, B: b, AddrA: local(a), AddrB: local(b), Settle: settle}
				})
			})
		}
	}
}

// Neither single datagrams nor batches allocate, with and without offloads, spinning and
// sleeping.
func TestLinkDoesNotAllocate(t *testing.T) {
	for _, f := range families {
		for _, o := range []Offload{OffloadOn, OffloadOff} {
			for _, n := range []int{1, 50, 200} {
				l := openLink(t, Config{Local: netip.AddrPortFrom(f.addr, 0), GSO: o, GRO: o, PatchIPID: noFix})
				ds := datagramsTo(l, n)
				ds[n/2].TClass, ds[n/2].HopLimit = link.ECT0, 7 // needs control messages
				in := make([]link.Datagram, 64)
				allocs := testing.AllocsPerRun(50, func() {
					sendAll(t, l, ds...)
					for got := 0; got < n; {
						l.WaitReadable(time.Second)
						k := must.Get(l.Recv(0, in))(t)
						got += k
					}
					l.Wake()
					l.WaitReadable(-1)
					l.WaitReadable(time.Microsecond)
					l.Recv(0, in)
					l.Stats()
				})
				if allocs != 0 {
					t.Errorf("%s, offloads %v, %d datagrams: %v allocations", f.name, o, n, allocs)
				}
			}
		}
	}
}
