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

// ucmatose is the peer as the C program is: one buffer a connection, from which it
// sends what it received last, and it looks at nothing.
type ucmatose struct{ Volley }

func (u ucmatose) Run(ctx context.Context, dev verbs.Context) (Result, error) {
	return u.run(ctx, dev, func(_ int, c *courier) {
		buf := make([]byte, u.Size)
		constant(fillByte).fill(buf)
		c.compose = func(_ int, b []byte) { copy(b, buf) }
		c.inspect = func(_ int, b []byte) error { copy(buf, b); return nil }
	})
}

func volleys(v Volley, here, there netip.Addr) meeting {
	ready := make(chan struct{})
	listening := func() { close(ready) }
	peer := v
	if v.Role == Client {
		v.Addr = netip.AddrPortFrom(there, ExchangePort)
		peer.Role, peer.Addr, peer.Ready = Server, v.Addr, listening
		return meeting{newFabric(), here, there, after{ready, v}, ucmatose{peer}}
	}
	v.Addr, v.Ready = netip.AddrPortFrom(here, ExchangePort), listening
	peer.Role, peer.Addr = Client, v.Addr
	return meeting{newFabric(), here, there, v, after{ready, ucmatose{peer}}}
}

func TestVolley(t *testing.T) {
	for _, v := range []Volley{
		{Size: 16, Count: 5}, {Size: 65536, Count: 3, Events: true}, {Size: 100, Count: 5, Connections: 3},
	} {
		for _, v.Role = range []Role{Client, Server} {
			for _, m := range []meeting{volleys(v, here4, there4), volleys(v, here6, there6)} {
				if ours, peers := m.run(t, 30*time.Second); ours != nil || peers != nil {
					t.Errorf("%s of %d: ours: %v; the peer's: %v", v.Role, v.Size, ours, peers)
				}
			}
		}
	}
}

// What the peer returns shows damage on either way; what its memory held shows it
// where one message differs from another.
func TestVolleyNoticesOneBit(t *testing.T) {
	for _, test := range []struct {
		role    Role
		to      netip.Addr
		message int
	}{
		{Server, there6, 5}, // the last, which comes back
		{Server, here6, 2},
		{Client, here6, 3},
	} {
		m := volleys(Volley{Role: test.role, Size: 100, Count: 5}, here6, there6)
		messages := 0
		m.fabric.spoil = func(dst netip.Addr, payload []byte) {
			if dst == test.to {
				if messages++; messages == test.message {
					payload[99] ^= 1
				}
			}
		}
		if ours, _ := m.run(t, 30*time.Second); !strings.Contains(fmt.Sprint(ours), "byte 99 of 100") {
			t.Errorf("%+v: got %v", test, ours)
		}
	}
}

func TestVolleyRefusesNonsense(t *testing.T) {
	dev := newFabric().device(here6)
	for _, v := range []Volley{{Role: Client, Size: 0, Count: 1}, {Role: Client, Size: 1}, {Role: "both", Size: 1, Count: 1}} {
		if _, err := v.Run(t.Context(), dev); err == nil {
			t.Errorf("%+v ran", v)
		}
	}
}
