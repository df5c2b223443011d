package random_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/traffic"
)

func TestMain(m *testing.M) { testutil.NamespaceMain(m) }

// The programs of the simulated world run unchanged in real time, on loopback sockets.
func TestSameProgramsInRealTime(t *testing.T) {
	work := everyService()
	work.Network = random.Network{Loses: true} // a socket buffer may overflow
	for i := range work.Lanes {
		l := &work.Lanes[i]
		l.Messages = [2]int{60, 60}
		l.Timeout = 14 // 67 ms: the machine may be busy
	}
	var pipes [2]traffic.Exchange
	pipes[0], pipes[1] = traffic.Pipe()
	errs := make(chan error, 2)
	for side, addr := range []string{"127.72.0.2", "127.72.0.3"} {
		d, err := softroce.OnUDP(udplink.Config{}, softroce.Config{Name: addr, Addrs: []netip.Addr{netip.MustParseAddr(addr)}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		end, err := random.NewEnd(random.Env{Device: d, Peer: pipes[side], Concurrent: true, StallTimeout: 20 * time.Second}, work, random.Side(side))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := end.Run(traffic.RealTime())
			errs <- err
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// An end whose peer never connects fails, and reports what it waits for.
func TestEndWithoutPeerStalls(t *testing.T) {
	d, err := softroce.OnUDP(udplink.Config{}, softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("127.72.0.4")}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	a, _ := traffic.Pipe()
	end, err := random.NewEnd(random.Env{Device: d, Peer: a, StallTimeout: 10 * time.Millisecond}, everyService(), random.A)
	if err != nil {
		t.Fatal(err)
	}
	_, err = end.Run(traffic.RealTime())
	expectStall(t, err, "waits for the peer to be card")
}
