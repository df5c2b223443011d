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

// udaddy is the peer as the C program is: one buffer for all, header included,
// sent from its start.
type udaddy struct {
	Datagrams
	ready chan struct{} // to wait for, as a client
}

func (u udaddy) Run(ctx context.Context, dev verbs.Context) (Result, error) {
	if u.Role == Client {
		<-u.ready
	}
	p, err := newPostman(u.Datagrams, dev)
	if err != nil {
		return Result{}, err
	}
	p.compose = func(b []byte) { copy(b, p.recvBuf) }
	p.inspect = func([]byte) error { return nil }
	cm, err := dev.CM()
	if err != nil {
		return Result{}, err
	}
	return p.run(ctx, cm)
}

func datagrams(role Role, here, there netip.Addr, events bool) meeting {
	ready := make(chan struct{})
	ours := Datagrams{Role: role, Local: here, Size: 100, Count: 5, Events: events}
	peer := ours
	peer.Local = there
	if role == Client {
		peer.Role, ours.Addr = Server, netip.AddrPortFrom(there, DatagramPort)
	} else {
		peer.Role, ours.Addr = Client, netip.AddrPortFrom(here, DatagramPort)
		ours.Ready = func() { close(ready) }
	}
	peer.Addr = ours.Addr
	return meeting{newFabric(), here, there, ours, udaddy{peer, ready}}
}

func TestDatagrams(t *testing.T) {
	for _, role := range []Role{Client, Server} {
		for _, events := range []bool{false, true} {
			for _, m := range []meeting{datagrams(role, here4, there4, events), datagrams(role, here6, there6, events)} {
				if ours, peers := m.run(t, 30*time.Second); ours != nil || peers != nil {
					t.Errorf("%s %v: ours: %v; the peer's: %v", role, m.here, ours, peers)
				}
			}
		}
	}
}

func TestDatagramsNoticeOneBit(t *testing.T) {
	for _, to := range []netip.Addr{here6, there6} {
		m := datagrams(Client, here6, there6, false)
		m.fabric.spoil = func(dst netip.Addr, payload []byte) {
			if dst == to {
				payload[59] ^= 1
			}
		}
		// On the way there the byte lies behind a header, on the way back before.
		want := map[netip.Addr]string{there6: "byte 59 of 60", here6: "byte 19 of 60"}[to]
		if ours, _ := m.run(t, 30*time.Second); !strings.Contains(fmt.Sprint(ours), want) {
			t.Errorf("spoilt on the way to %v: got %v, want %q", to, ours, want)
		}
	}
}

func TestDatagramsRefuseNonsense(t *testing.T) {
	for _, d := range []Datagrams{{Size: verbs.GRHLen, Count: 1}, {Size: 100}} {
		if _, err := d.Run(t.Context(), newFabric().device(here6)); err == nil {
			t.Errorf("%+v ran", d)
		}
	}
}
