package softiwarp

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestCloseWakesBlockedCallsOnTCP(t *testing.T) {
	a, b := loopback(t, "127.81.1.2", Config{}), loopback(t, "127.81.1.3", Config{})
	to := netip.AddrPortFrom(b.cfg.Addrs[0], echoPort)
	listening, accepted := make(chan struct{}), make(chan error)
	go func() {
		_, _, err := acceptOne(b, to, func() { close(listening) })
		accepted <- err
	}()
	<-listening
	_, c, err := connectTo(a, to)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	mute, err := net.Listen("tcp", "127.81.1.4:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	calls, err := parked(a, c, a.cfg.Addrs[0], netip.MustParseAddrPort(mute.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		name string
		err  error
	}
	ended := make(chan outcome, len(calls))
	for _, call := range calls {
		go func() { ended <- outcome{call.what, call.do()} }()
	}
	for {
		a.Driver().Lock(drive.CallWait)
		n := a.BlockedCalls()
		a.Driver().Unlock()
		if n == len(calls) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	for range calls {
		select {
		case o := <-ended:
			if !errors.Is(o.err, verbs.ErrClosed) {
				t.Errorf("%s: %v", o.name, o.err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("a call still waits")
		}
	}
}
