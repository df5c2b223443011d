package softiwarp

import (
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// Connections are established and closed concurrently, some before the echo arrives.
func TestManyConnectionsAtOnce(t *testing.T) {
	da, db := loopback(t, "127.81.4.4", Config{}), loopback(t, "127.81.4.5", Config{})
	l := listen(t, db, netip.AddrPortFrom(db.cfg.Addrs[0], 0))
	const conns, rounds = 8, 10
	var wg sync.WaitGroup
	for range conns {
		wg.Go(func() {
			for {
				req, err := l.GetRequest(verbs.Forever)
				if errors.Is(err, verbs.ErrClosed) {
					return
				}
				must.Do(t, err)
				serveOne(t, db, req)
			}
		})
	}
	var clients sync.WaitGroup
	for i := range conns {
		clients.Go(func() {
			for r := range rounds {
				echoOnce(t, da, l.Addr(), i, r)
			}
		})
	}
	clients.Wait()
	must.Do(t, l.Close())
	wg.Wait()
}

// serveOne accepts a connection, echoes one message and waits for the disconnect.
func serveOne(t testing.TB, d *Device, req verbs.ConnRequest) {
	e := newEnd(t, d)
	e.Recv(0, 5000)
	c := must.Get(req.Accept(e.QP, connParam, 30*time.Second))(t)
	if wc := e.AwaitWC(); wc.Status == verbs.WCSuccess {
		err := e.TryPost(verbs.SendWR{Opcode: verbs.OpSend, SGL: e.SGL(0, int(wc.ByteLen))})
		if err != nil && !errors.Is(err, verbs.ErrInvalid) {
			t.Error(err)
		}
	}
	must.Do(t, c.WaitDisconnect(30*time.Second))
	must.Do(t, e.QP.Close())
}

// echoOnce sends one message, waits for its echo and closes the connection in one of several ways.
func echoOnce(t testing.TB, d *Device, to netip.AddrPort, i, r int) {
	e, c := connectTo(t, d, to)
	if r%4 != 3 {
		e.Recv(6000, 5000)
		want := e.Fill(0, 4000+i, byte(r))
		e.Send(0, len(want))
		e.AwaitSuccess()
		e.AwaitSuccess()
		same(t, want, e.Buf[6000:6000+len(want)])
		if r%2 == 0 {
			must.Do(t, c.Disconnect())
		}
	}
	must.Do(t, e.QP.Close())
}
