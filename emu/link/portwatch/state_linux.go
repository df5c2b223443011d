package portwatch

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
)

// state is what is known of the port. It is fed with messages of the kernel's, and
// does not care whether they are news or answers.
type state struct {
	addrs []watchedAddr
	// index is that of the interface that owns the addresses; 0 while none is known.
	index int
	up    bool
}

// watched is an address of the port's.
type watchedAddr struct {
	netip.Addr
	// given is the address as the observer knows it.
	original netip.Addr
	// zone is the interface that it is on, where the address says so; else 0.
	zone int
	// known: the kernel has listed it. An address that is never listed, as that of a
	// wildcard or most of 127.0.0.0/8, cannot be missed either.
	listed  bool
	present bool
	inDump  bool // in the listing that is under way
}

// newState knows nothing yet, and takes that for good news.
func newState(addrs []netip.Addr) *state {
	s := &state{up: true}
	for _, a := range addrs {
		s.addrs = append(s.addrs, watchedAddr{Addr: a.Unmap().WithZone(""), original: a, zone: zoneIndex(a.Zone()), present: true})
	}
	return s
}

// zoneIndex is the number of the interface that a zone names; 0 if there is none.
func zoneIndex(zone string) int {
	if zone == "" {
		return 0
	}
	if n, err := strconv.Atoi(zone); err == nil {
		return n
	}
	ifi, err := net.InterfaceByName(zone)
	if err != nil {
		return 0
	}
	return ifi.Index
}

// heard is what a message has changed: the observer is to be told, or the kernel is
// to be asked.
type change struct {
	link bool
	addr *watchedAddr
	// moved: the addresses are on another interface than was thought.
	interfaceChanged bool
}

// running is what the flags of an interface say that can send and receive: it is
// switched on, has a carrier, and its operational state is up or unknown, as that of
// a loopback always is.
const runningFlags = unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP

// takeLink takes what was said of an interface; gone if it is there no longer.
func (s *state) updateLink(index int, flags uint32, gone bool) (h change) {
	if index != s.index || s.index == 0 {
		return h
	}
	up := flags&runningFlags == runningFlags && !gone
	h.link = up != s.up
	s.up = up
	return h
}

// takeAddr takes what was said of an address.
func (s *state) updateAddr(m *addrMessage) (h change) {
	a := s.find(m)
	switch {
	case a == nil:
		return h
	case a.Addr != m.addr: // of the same loopback: only that is certain
		h.interfaceChanged = s.index == 0 && !m.gone
	case m.gone && m.index != s.index && a.present:
		return h // another interface had it too
	default:
		a.listed, a.inDump = true, !m.gone
		if a.present == m.gone {
			a.present = !m.gone
			h.addr = a
		}
		h.interfaceChanged = !m.gone && m.index != s.index
	}
	if h.interfaceChanged {
		s.index = m.index
	}
	return h
}

// find returns which of the addresses a message is about, or tells something of.
func (s *state) find(m *addrMessage) *watchedAddr {
	for i := range s.addrs {
		if a := &s.addrs[i]; a.Addr == m.addr && (a.zone == 0 || a.zone == m.index) {
			return a
		}
	}
	i := slices.IndexFunc(s.addrs, func(a watchedAddr) bool {
		return a.IsLoopback() && m.addr.IsLoopback() && m.network().Contains(a.Addr)
	})
	if i < 0 {
		return nil
	}
	return &s.addrs[i]
}

// begin is called before the kernel lists all addresses.
func (s *state) beginDump() {
	for i := range s.addrs {
		s.addrs[i].inDump = false
	}
}

// end is called behind the listing: what was not in it is gone.
func (s *state) endDump(tell func(change)) {
	for i := range s.addrs {
		if a := &s.addrs[i]; a.listed && a.present && !a.inDump {
			a.present = false
			tell(change{addr: a})
		}
	}
}

// tell tells an observer what has changed.
func (s *state) notify(o link.PortObserver, h change) {
	if h.link {
		o.LinkChanged(s.up)
	}
	if h.addr != nil {
		o.AddrChanged(h.addr.original, h.addr.present)
	}
}
