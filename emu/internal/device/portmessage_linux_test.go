package device

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
)

// addrPayload returns the payload of an address message.
func addrPayload(index uint32, bits uint8, flags uint32, attrs ...netip.Addr) []byte {
	b := []byte{unix.AF_INET6, bits, uint8(flags), 0}
	b = order.AppendUint32(b, index)
	for i, a := range attrs {
		if !a.IsValid() {
			continue
		}
		v := a.AsSlice()
		b = order.AppendUint16(b, uint16(unix.SizeofRtAttr+len(v)))
		b = order.AppendUint16(b, []uint16{unix.IFA_ADDRESS, unix.IFA_LOCAL}[i])
		b = append(b, v...)
	}
	b = order.AppendUint16(b, unix.SizeofRtAttr+4)
	b = order.AppendUint16(b, unix.IFA_FLAGS)
	return order.AppendUint32(b, flags)
}

func TestParseAddr(t *testing.T) {
	four, peer, six := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::1")
	for _, tc := range []struct {
		name    string
		payload []byte
		deleted bool
		want    addrMessage
		ok      bool
	}{
		{"IPv6 has no local address", addrPayload(7, 64, 0, six), false, addrMessage{addr: six, bits: 64, index: 7}, true},
		{"at a point-to-point link the local one counts", addrPayload(7, 32, 0, peer, four), false, addrMessage{addr: four, bits: 32, index: 7}, true},
		{"deleted", addrPayload(7, 24, 0, four, four), true, addrMessage{addr: four, bits: 24, index: 7, gone: true}, true},
		{"tentative", addrPayload(7, 64, unix.IFA_F_TENTATIVE, six), false, addrMessage{addr: six, bits: 64, index: 7, gone: true}, true},
		{"optimistic", addrPayload(7, 64, unix.IFA_F_TENTATIVE|unix.IFA_F_OPTIMISTIC, six), false, addrMessage{addr: six, bits: 64, index: 7}, true},
		{"a duplicate", addrPayload(7, 64, unix.IFA_F_DADFAILED, six), false, addrMessage{addr: six, bits: 64, index: 7, gone: true}, true},
		{"flags of the attribute", slices.Replace(addrPayload(7, 64, unix.IFA_F_TENTATIVE, six), 2, 3, 0), false, addrMessage{addr: six, bits: 64, index: 7, gone: true}, true},
		{"no address", addrPayload(7, 64, 0), false, addrMessage{}, false},
		{"more bits than there are", addrPayload(7, 33, 0, four, four), false, addrMessage{}, false},
		{"cut off", addrPayload(7, 64, 0, six)[:20], false, addrMessage{}, false},
		{"empty", nil, false, addrMessage{}, false},
	} {
		m := syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.RTM_NEWADDR}, Data: tc.payload}
		if tc.deleted {
			m.Header.Type = unix.RTM_DELADDR
		}
		got, ok := parseAddr(&m)
		if ok != tc.ok || ok && got != tc.want {
			t.Errorf("%s: %+v, %v, want %+v, %v", tc.name, got, ok, tc.want, tc.ok)
		}
	}
}

func TestRequestsAreNetlinkMessages(t *testing.T) {
	all, err := syscall.ParseNetlinkMessage(append(newAddrDump(5), newLinkRequest(6, 9)...))
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	if h := all[0].Header; h.Seq != 5 || h.Type != unix.RTM_GETADDR || h.Flags != unix.NLM_F_REQUEST|unix.NLM_F_DUMP {
		t.Errorf("dump: %+v", h)
	}
	index, _, ok := parseLink(&all[1])
	if h := all[1].Header; h.Seq != 6 || h.Type != unix.RTM_GETLINK || h.Flags != unix.NLM_F_REQUEST || !ok || index != 9 {
		t.Errorf("link: %+v, index %d", h, index)
	}
}

// An interface is up only if it is enabled, has a carrier and is operational.
func TestLinkStateFollowsFlags(t *testing.T) {
	s := newPortState([]netip.Addr{netip.MustParseAddr("fd00::1")})
	s.updateAddr(&addrMessage{addr: s.addrs[0].Addr, bits: 64, index: 3})
	for _, tc := range []struct {
		flags uint32
		up    bool
	}{
		{unix.IFF_UP | unix.IFF_LOWER_UP | unix.IFF_RUNNING | unix.IFF_BROADCAST, true},
		{unix.IFF_UP | unix.IFF_LOWER_UP, false}, // dormant
		{unix.IFF_UP, false},
		{unix.IFF_LOWER_UP | unix.IFF_RUNNING, false},
	} {
		if s.updateLink(3, tc.flags, false); s.up != tc.up {
			t.Errorf("%#x: up %v", tc.flags, s.up)
		}
	}
	s.updateLink(3, runningFlags, false)
	if h := s.updateLink(4, 0, true); h.link || !s.up {
		t.Error("another interface counts")
	}
	if h := s.updateLink(3, runningFlags, true); !h.link || s.up {
		t.Error("an interface that is gone does not")
	}
}

// Random bytes do not make the parsers panic.
func TestParsersAcceptAnyBytes(t *testing.T) {
	lo := netip.MustParseAddr("127.0.0.1")
	whole := append(newRequest(unix.RTM_NEWADDR, 0, 0, addrPayload(1, 8, 0, lo, lo)), newLinkRequest(2, 3)...)
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		b := bytes.Clone(whole[:r.IntN(len(whole)+1)])
		for range r.IntN(4) {
			if len(b) > 0 {
				b[r.IntN(len(b))] = byte(r.Uint32())
			}
		}
		s := newPortState([]netip.Addr{netip.MustParseAddr("127.0.0.3"), lo})
		all, _ := syscall.ParseNetlinkMessage(b)
		for i := range all {
			if a, ok := parseAddr(&all[i]); ok {
				s.updateAddr(&a)
			}
			if index, flags, ok := parseLink(&all[i]); ok {
				s.updateLink(index, flags, all[i].Header.Type == unix.RTM_DELLINK)
			}
		}
	}
}

func TestZoneIsNameOrIndexOfInterface(t *testing.T) {
	lo := must.Get(net.InterfaceByName("lo"))(t)
	for zone, want := range map[string]int{"": 0, "7": 7, "lo": lo.Index, "no-such-interface": 0} {
		if got := zoneIndex(zone); got != want {
			t.Errorf("zone %q: interface %d, want %d", zone, got, want)
		}
	}
}

// An error reply to the request of an interface says that it was removed; one to a dump ends the
// watch. Others are not for this socket.
func TestErrorRepliesOfKernel(t *testing.T) {
	const dump, link = 5, 6
	for _, tc := range []struct {
		name    string
		seq     uint32
		payload []byte
		fails   bool
		down    bool
	}{
		{"to the dump", dump, order.AppendUint32(nil, ^uint32(unix.EPERM)+1), true, false},
		{"to the link request", link, order.AppendUint32(nil, ^uint32(unix.ENODEV)+1), false, true},
		{"to another request", link + 1, make([]byte, 4), false, false},
		{"without sequence number", 0, make([]byte, 4), false, false},
		{"cut off", link, make([]byte, 3), false, false},
	} {
		w := &portWatch{state: newPortState([]netip.Addr{netip.MustParseAddr("fd00::1")}), dumpSeq: dump, linkSeq: link}
		w.state.index = 3
		if tc.seq == 0 {
			w.dumpSeq, w.linkSeq = 0, 0
		}
		changed := false
		m := syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.NLMSG_ERROR, Seq: tc.seq}, Data: tc.payload}
		err := w.handle(&m, func(c portChange) { changed = changed || c.link })
		if (err != nil) != tc.fails || tc.fails && !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if changed != tc.down || w.state.up == tc.down || tc.down && w.linkSeq != 0 {
			t.Errorf("%s: changed %v, up %v, request %d under way", tc.name, changed, w.state.up, w.linkSeq)
		}
	}
}
