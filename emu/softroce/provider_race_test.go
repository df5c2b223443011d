package softroce

import (
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/verbs"
)

// A device may be used from several goroutines, one object too. The race
// detector is the judge.
func TestObjectsAreSafeForConcurrentUse(t *testing.T) {
	da, db := loopback(t, "127.71.2.2", udplink.Config{}), loopback(t, "127.71.2.3", udplink.Config{})
	a, _, err := ends(da, db)
	if err != nil {
		t.Fatal(err)
	}
	ud, err := newEnd(da, verbs.QPTypeUD)
	if err != nil {
		t.Fatal(err)
	}
	mr, err := a.pd.RegMR(verbs.MRInit{Buf: make([]byte, 64), Access: verbs.AccessLocalWrite | verbs.AccessMWBind})
	if err != nil {
		t.Fatal(err)
	}
	mw, err := a.pd.AllocMW(verbs.MWType1)
	if err != nil {
		t.Fatal(err)
	}
	const users, binds = 4, 8
	group := verbs.GIDFrom(netip.MustParseAddr("239.71.0.1"))
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		keys = map[verbs.RKey]bool{}
	)
	for i := range users {
		wg.Go(func() {
			for range binds {
				key, err := a.qp.BindMW(mw, 1, 0, verbs.BindInfo{MR: mr, Addr: mr.Addr(), Length: 8, Access: verbs.AccessRemoteRead})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				if keys[key] {
					t.Errorf("key %#x was given twice", key)
				}
				keys[key] = true
				mu.Unlock()

				if err := ud.qp.AttachMulticast(group); err != nil {
					t.Error(err)
				}
				if err := ud.qp.DetachMulticast(group); err != nil && !errors.Is(err, verbs.ErrInvalid) {
					t.Error(err)
				}
				if err := ud.cq.Resize(16 + i); err != nil {
					t.Error(err)
				}
				ud.cq.Depth()
				da.Counters()
			}
		})
	}
	wg.Wait()
	if len(keys) != users*binds {
		t.Errorf("%d keys", len(keys))
	}
	err = ud.qp.DetachMulticast(group)
	if !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("still a member: %v", err)
	}
	if err := ud.qp.Close(); err != nil {
		t.Error(err)
	}
}
