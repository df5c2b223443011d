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

// after is a program that starts when its peer listens.
type after struct {
	ready chan struct{} // nil: at once
	runner
}

func (a after) Run(ctx context.Context, dev verbs.Context) (Result, error) {
	if a.ready != nil {
		<-a.ready
	}
	return a.runner.Run(ctx, dev)
}

// cExchange is rdma_client or rdma_server: it sends zeros and looks at nothing.
type cExchange struct{ Exchange }

func (x cExchange) Run(ctx context.Context, dev verbs.Context) (Result, error) {
	return x.run(ctx, dev, func(c *courier) { c.compose = func(int, []byte) {} })
}

func exchanges(role Role, here, there netip.Addr, events bool) meeting {
	ready := make(chan struct{})
	ours := Exchange{Role: role, Events: events}
	peer := Exchange{Role: Server}
	if role == Client {
		ours.Addr = netip.AddrPortFrom(there, ExchangePort)
		peer.Addr, peer.Ready = ours.Addr, func() { close(ready) }
		return meeting{newFabric(), here, there, after{ready, ours}, cExchange{peer}}
	}
	ours.Addr, ours.Ready = netip.AddrPortFrom(here, ExchangePort), func() { close(ready) }
	peer.Addr, peer.Role = ours.Addr, Client
	return meeting{newFabric(), here, there, ours, after{ready, cExchange{peer}}}
}

func TestExchange(t *testing.T) {
	for _, role := range []Role{Client, Server} {
		for _, events := range []bool{false, true} {
			for _, m := range []meeting{exchanges(role, here4, there4, events), exchanges(role, here6, there6, events)} {
				if ours, peers := m.run(t, 30*time.Second); ours != nil || peers != nil {
					t.Errorf("%s %v: ours: %v; the peer's: %v", role, m.here, ours, peers)
				}
			}
		}
	}
}

func TestExchangeNoticesOneBit(t *testing.T) {
	for _, role := range []Role{Client, Server} {
		m := exchanges(role, here6, there6, false)
		m.fabric.spoil = func(dst netip.Addr, payload []byte) {
			if dst == here6 {
				payload[15] ^= 0x80
			}
		}
		if ours, _ := m.run(t, 30*time.Second); !strings.Contains(fmt.Sprint(ours), "byte 15 of 16 is 0x80") {
			t.Errorf("%s: got %v", role, ours)
		}
	}
}

// A message too many meets the one receive that was not meant for any.
func TestCourierNoticesAMessageTooMany(t *testing.T) {
	f := newFabric()
	here, there := f.device(here4), f.device(there4)
	ready := make(chan struct{})
	addr := netip.AddrPortFrom(there4, ExchangePort)
	served := make(chan error, 1)
	go func() {
		_, err := Exchange{Role: Server, Addr: addr, Ready: func() { close(ready) }}.run(t.Context(), there, func(c *courier) {
			c.inspect = func(int, []byte) error {
				_, err := c.qp.PostSend([]verbs.SendWR{{WRID: 99, Opcode: verbs.OpSend, Inline: make([]byte, ExchangeSize)}})
				_, _ = c.comp.cq.Poll(c.comp.buf[:1])
				return err
			}
		})
		served <- err
	}()
	<-ready
	_, err := Exchange{Role: Client, Addr: addr}.Run(t.Context(), here)
	if err == nil || !strings.Contains(err.Error(), "completion") {
		t.Errorf("two messages instead of one: %v; the server: %v", err, <-served)
	}
}

func TestExchangeGivesUp(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errTooLong)
	defer cancel()
	dev := newFabric().device(here4)
	if _, err := (Exchange{Role: Server, Addr: netip.AddrPortFrom(here4, 1)}).Run(ctx, dev); err == nil || !strings.Contains(err.Error(), "nobody came") {
		t.Errorf("server without a client: %v", err)
	}
	if _, err := (Exchange{Role: Client, Addr: netip.AddrPortFrom(there4, 1)}).Run(ctx, dev); err == nil {
		t.Error("client without a server ran")
	}
	if _, err := (Exchange{Role: "both"}).Run(ctx, dev); err == nil {
		t.Error("a role that is none ran")
	}
	if dev.open != 0 {
		t.Errorf("%d objects left open", dev.open)
	}
}
