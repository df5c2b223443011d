package udplink

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
)

// A datagram orders memory accesses: the race detector does not report a write before Send
// and a read after Recv, whichever system call was used.
func TestDatagramOrdersMemoryAccesses(t *testing.T) {
	for _, n := range []int{1, 2, 40} {
		for _, tclass := range []uint8{0, link.CE} { // the second needs a control message
			t.Run(fmt.Sprintf("%d datagrams, traffic class %d", n, tclass), func(t *testing.T) {
				rx := openLink(t, Config{Local: netip.AddrPortFrom(families[0].addr, 0)})
				tx := openLink(t, Config{Local: netip.AddrPortFrom(families[0].addr, 0)})
				ds := datagramsTo(rx, n)
				for i := range ds {
					ds[i].TClass = tclass
				}
				before, in := 0, make([]link.Datagram, n)
				errs := make(chan error, 1)
				// Nothing but the datagram may order the two goroutines, t.Helper included.
				go func() {
					before = 1
					var err error
					for left := ds; len(left) > 0 && err == nil; {
						var took int
						took, err = tx.Send(0, left)
						left = left[took:]
					}
					errs <- err
				}()
				for got := 0; got < n; runtime.Gosched() {
					k := must.Get(rx.Recv(0, in))(t)
					got += k
				}
				if before != 1 {
					t.Error("the datagram arrived before it was sent")
				}
				if err := <-errs; err != nil {
					t.Error(err)
				}
			})
		}
	}
}
