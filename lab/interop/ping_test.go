package interop

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// afterListening is a client that waits until its server listens.
type afterListening struct {
	Ping
	ready chan struct{}
}

func (a afterListening) Run(ctx context.Context, dev verbs.Context) (Result, error) {
	<-a.ready
	return a.Ping.Run(ctx, dev)
}

func pings(p Ping) meeting {
	ready := make(chan struct{})
	server := p
	p.Role, p.Addr = Client, netip.AddrPortFrom(there6, PingPort)
	server.Role, server.Addr, server.Ready = Server, p.Addr, func() { close(ready) }
	return meeting{newFabric(), here6, there6, afterListening{p, ready}, server}
}

func TestPing(t *testing.T) {
	for _, p := range []Ping{
		{Size: 64, Count: 70}, {Size: MaxPingSize, Count: 3, Events: true}, {Size: 1025, Count: 5, Connections: 3},
	} {
		t.Run(fmt.Sprint(p.Size), func(t *testing.T) {
			if ours, peers := pings(p).run(t, 30*time.Second); ours != nil || peers != nil {
				t.Errorf("client: %v; server: %v", ours, peers)
			}
		})
	}
}

// The server finds a bit that its read brings wrong, the client one that the
// write brings wrong.
func TestPingNoticesOneBit(t *testing.T) {
	for direction, want := range map[string]string{"read": "client offers", "write": "ping 2: ping 2: byte 31 of 1025"} {
		m := pings(Ping{Size: 1025, Count: 5})
		writes := 0
		m.fabric.spoil = func(to netip.Addr, payload []byte) {
			switch {
			case direction == "write" && to == here6 && len(payload) == 1025:
				// Reads carry a payload in this direction too, before they do.
				if writes++; writes == 6 {
					payload[31] ^= 1
				}
			case direction == "read" && to == there6:
				payload[15] ^= 1 // the size in the client's offer
			}
		}
		ours, peers := m.run(t, 5*time.Second)
		if all := fmt.Sprint(ours, peers); !strings.Contains(all, want) {
			t.Errorf("%s: got %s; want %q", direction, all, want)
		}
	}
}

func TestPingRefusesNonsense(t *testing.T) {
	for _, p := range []Ping{{Role: Client, Size: 8, Count: 1}, {Role: Client, Size: 65536, Count: 1}, {Role: Client, Size: 64}, {Role: "both", Size: 64, Count: 1}} {
		if _, err := p.Run(t.Context(), newFabric().device(here6)); err == nil {
			t.Errorf("%+v ran", p)
		}
	}
}
