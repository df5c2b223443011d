package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// Recv fails if just one packet was dropped, also if others can still be read: a case must not
// judge a device by a part of its packets.
func TestSimWireReportsDroppedPackets(t *testing.T) {
	for _, unread := range []int{maxUnread - 1, maxUnread} {
		w := &simWorld{World: sim.New(sim.Config{})}
		x := &simWire{w: w, arrived: make([]conformance.Frame, unread), inFlight: make([]conformance.Frame, 1)}
		w.World.Go("case", func(*sim.Proc) error {
			x.HandleEvent(0, 0)
			_, err := x.Recv(0)
			if dropped := unread == maxUnread; (err != nil) != dropped || errors.Is(err, verbs.ErrTimeout) {
				return fmt.Errorf("after %d unread packets and one more: %w", unread, err)
			}
			return nil
		})
		must.Do(t, w.RunPrograms())
		w.Close()
	}
}

// receivedLink is a link that has received datagrams.
type receivedLink struct {
	link.GroupLink
	ds []link.Datagram
}

func (l receivedLink) Recv(_ mono.Time, ds []link.Datagram) (int, error) { return copy(ds, l.ds), nil }

// The device sees the destination and the flow label that the peer has sent.
func TestRedirectedPacketsAreRestored(t *testing.T) {
	const flowLabel = 0x54321
	unknown, known := []netip.Addr{hostAddr(6, 77), hostAddr(6, 78)}, hostAddr(6, firstDevice)
	var sent []link.Datagram
	for number, to := range []netip.Addr{known, hostAddr(6, cableHost), hostAddr(6, cableHost)} {
		sent = append(sent, link.Datagram{Dst: netip.AddrPortFrom(to, 4791), FlowLabel: uint32(number)<<unknownShift | flowLabel})
	}
	l := &redirectedLink{receivedLink{ds: sent}, &simWire{unknownAddrs: unknown}}
	got := make([]link.Datagram, 4)
	got = got[:must.Get(l.Recv(0, got))(t)]
	if len(got) != len(sent) {
		t.Fatalf("%d datagrams, want %d", len(got), len(sent))
	}
	for i, to := range append([]netip.Addr{known}, unknown...) {
		if d := &got[i]; d.Dst != netip.AddrPortFrom(to, 4791) || d.FlowLabel != flowLabel {
			t.Errorf("datagram %d to %v with flow label %#x, want %v and %#x", i, d.Dst, d.FlowLabel, to, flowLabel)
		}
	}
}
