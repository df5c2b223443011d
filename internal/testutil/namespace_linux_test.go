package testutil

import (
	"net"
	"testing"
)

// In the host network, the rxe driver may use port 4791.
func TestMainRunsTestsInNewNetworkNamespace(t *testing.T) {
	if why := NamespacesUnavailable(); why != nil {
		t.Skipf("no network namespaces here: %v", why)
	}
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all { // the kernel may have created tunnels, which are down
		if up := i.Flags&net.FlagUp != 0; up != (i.Name == "lo") {
			t.Errorf("%s is up: %v", i.Name, up)
		}
	}
	l, err := net.ListenPacket("udp", "127.0.0.1:4791")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}
