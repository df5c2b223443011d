package softroce

import (
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// Goroutines may share a queue pair that joins and leaves a multicast group. The race
// detector checks it.
func TestMulticastIsSafeForConcurrentUse(t *testing.T) {
	ud := providertest.NewEnd(t, loopback(t, "127.71.2.2", udplink.Config{}), verbs.QPTypeUD)
	group := verbs.GIDFrom(netip.MustParseAddr("239.71.0.1"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 8 {
				if err := ud.QP.AttachMulticast(group); err != nil {
					t.Error(err)
				}
				if err := ud.QP.DetachMulticast(group); err != nil && !errors.Is(err, verbs.ErrInvalid) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	must.Fail(t, "detach again", ud.QP.DetachMulticast(group), verbs.ErrInvalid)
	must.Do(t, ud.QP.Close())
}
