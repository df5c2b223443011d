package wire

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

var errBroken = errors.New("the wire is broken")

// brokenWire is a wire on which each call fails at once.
type brokenWire struct {
	conformance.Wire
	calls chan struct{} // gets a value for each call of Recv
}

func (w *brokenWire) Recv(time.Duration) (conformance.Frame, error) {
	w.calls <- struct{}{}
	return conformance.Frame{}, errBroken
}

// After an error of the wire the host does not read it again.
func TestTCPHostStopsReadingBrokenWire(t *testing.T) {
	w := &brokenWire{calls: make(chan struct{}, 1000)}
	h := NewTCPHost(TCPConfig{Wire: w, Addr: netip.MustParseAddr("fd00::1"), MTU: 1500})
	defer h.Close()
	if err := h.waitUntil("failure", 10*time.Second, func() bool { return false }); !errors.Is(err, errBroken) {
		t.Errorf("a call on the failed host returned %v", err)
	}
	<-w.calls
	select {
	case <-w.calls:
		t.Error("the wire is read again")
	case <-time.After(50 * time.Millisecond):
	}
}
