package testutil

import (
	"net"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// In the host network, the rxe driver may use port 4791.
func TestMainRunsTestsInNewNetworkNamespace(t *testing.T) {
	if why := NamespacesUnavailable(); why != nil {
		t.Skipf("no network namespaces here: %v", why)
	}
	all := must.Get(net.Interfaces())(t)
	for _, i := range all { // the kernel may have created tunnels, which are down
		if up := i.Flags&net.FlagUp != 0; up != (i.Name == "lo") {
			t.Errorf("%s is up: %v", i.Name, up)
		}
	}
	l := must.Get(net.ListenPacket("udp", "127.0.0.1:4791"))(t)
	l.Close()
}
