package bench

import (
	"errors"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

// netem reorders packets with any jitter.
func TestJitterInOrderIsUnsupportedInNamespaces(t *testing.T) {
	if err := new(benchNetwork).setPath(conformance.Path{Jitter: 1, KeepOrder: true}); !errors.Is(err, conformance.ErrBenchCannot) {
		t.Error(err)
	}
}

// A socket that fence leaves open would receive packets of the case.
func TestFenceClosesItsSocket(t *testing.T) {
	if why := testutil.NamespacesUnavailable(); why != nil {
		t.Skipf("no network namespaces here: %v", why)
	}
	n := must.Get(newBenchNetwork(false))(t)
	defer func() { must.Do(t, n.close()) }()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close an unused socket
	for range 3 {
		must.Do(t, n.fence(hostAddr(6, firstPeer), hostAddr(6, firstDevice)))
	}
	var sockets []byte
	must.Do(t, n.device.Do(func() (err error) {
		sockets, err = os.ReadFile("/proc/thread-self/net/udp6")
		return err
	}))
	if lines := strings.Count(string(sockets), "\n"); lines != 1 { // the titles
		t.Errorf("UDP sockets are open:\n%s", sockets)
	}
}
