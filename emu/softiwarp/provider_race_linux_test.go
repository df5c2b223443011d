package softiwarp

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// A device may be used from several goroutines, one object too. The race
// detector is the judge.
func TestObjectsAreSafeForConcurrentUse(t *testing.T) {
	da, db := loopback(t, "127.81.4.2", Config{}), loopback(t, "127.81.4.3", Config{})
	a, b, err := ends(da, db)
	if err != nil {
		t.Fatal(err)
	}
	mw, err := a.pd.AllocMW(verbs.MWType1)
	if err != nil {
		t.Fatal(err)
	}
	const users, binds = 4, 8
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		keys = map[verbs.RKey]bool{}
	)
	for i := range users {
		wg.Go(func() {
			for range binds {
				key, err := a.qp.BindMW(mw, 1, 0, verbs.BindInfo{MR: a.mr, Addr: a.mr.Addr(), Length: 8, Access: verbs.AccessRemoteRead})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				if keys[key] {
					t.Errorf("key %#x was given twice", key)
				}
				keys[key] = true
				mu.Unlock()
				if err := b.recv(0, 10); err != nil {
					t.Error(err)
				}
				if err := b.cq.Resize(64 + i); err != nil {
					t.Error(err)
				}
				da.Counters()
				if _, err := b.qp.Query(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(keys) != users*binds {
		t.Errorf("%d keys", len(keys))
	}
}

// Many connections come and go at once between two devices, while others are
// closed under them.
func TestManyConnectionsAtOnce(t *testing.T) {
	da, db := loopback(t, "127.81.4.4", Config{}), loopback(t, "127.81.4.5", Config{})
	l, err := db.cm.Listen(netip.AddrPortFrom(db.cfg.Addrs[0], 0), verbs.PortSpaceTCP, 0)
	if err != nil {
		t.Fatal(err)
	}
	const conns, rounds = 8, 10
	var wg sync.WaitGroup
	for range conns {
		wg.Go(func() {
			for {
				req, err := l.GetRequest(verbs.Forever)
				if errors.Is(err, verbs.ErrClosed) {
					return
				}
				if err == nil {
					err = serveOne(db, req)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	var clients sync.WaitGroup
	for i := range conns {
		clients.Go(func() {
			for r := range rounds {
				if err := visit(da, l.Addr(), i, r); err != nil {
					t.Errorf("client %d, round %d: %v", i, r, err)
				}
			}
		})
	}
	clients.Wait()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// serveOne accepts, sends back one message and waits for the end.
func serveOne(d *Device, req verbs.ConnRequest) error {
	e, err := newEnd(d)
	if err != nil {
		return err
	}
	if err := e.recv(0, 5000); err != nil {
		return err
	}
	c, err := req.Accept(e.qp, connParam, 30*time.Second)
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	if wc, err := e.complete(); err != nil {
		return err
	} else if wc.Status == verbs.WCSuccess {
		if err := e.send(0, int(wc.ByteLen)); err != nil && !errors.Is(err, verbs.ErrInvalid) {
			return err
		}
	}
	if err := c.WaitDisconnect(30 * time.Second); err != nil {
		return err
	}
	return e.qp.Close()
}

// visit has one message sent back and ends the connection in one way or another.
func visit(d *Device, to netip.AddrPort, i, r int) error {
	e, c, err := connectTo(d, to)
	if err != nil {
		return err
	}
	if r%4 == 3 {
		return e.qp.Close()
	}
	if err := e.recv(6000, 5000); err != nil {
		return err
	}
	want := e.fill(0, 4000+i, byte(r))
	if err := e.send(0, len(want)); err != nil {
		return err
	}
	for range 2 {
		if _, err := e.succeed(); err != nil {
			return err
		}
	}
	if err := same(want, e.buf[6000:6000+len(want)]); err != nil {
		return err
	}
	if r%2 == 0 {
		if err := c.Disconnect(); err != nil {
			return err
		}
	}
	return e.qp.Close()
}
