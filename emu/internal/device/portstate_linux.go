package device

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
)

// portState is the known state of the port. Notifications and replies of the kernel update it
// alike.
type portState struct {
	addrs []watchedAddr
	// index of the interface that owns the addresses; 0 while none is known.
	index int
	up    bool
}

// watchedAddr is an address of the port.
type watchedAddr struct {
	netip.Addr
	// original is the address as passed to Open.
	original netip.Addr
	// zone is the index of the interface that the address names; else 0.
	zone int
	// listed: the kernel has listed the address. A wildcard, and most of 127.0.0.0/8, never
	// is and counts as present.
	listed  bool
	present bool
	inDump  bool // in the dump under way
}

// newPortState returns a state in which the link is up and all addresses are present.
func newPortState(addrs []netip.Addr) *portState {
	s := &portState{up: true}
	for _, a := range addrs {
		s.addrs = append(s.addrs, watchedAddr{Addr: unmapAddr(a), original: a, zone: zoneIndex(a.Zone()), present: true})
	}
	return s
}

// zoneIndex is the index of the interface that a zone names; 0 if there is none.
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

// portChange is the effect of a message on the state.
type portChange struct {
	link bool
	addr *watchedAddr
	// interfaceChanged: the addresses belong to another interface, whose state must be
	// requested.
	interfaceChanged bool
}

// runningFlags are the flags of an interface that can send and receive: it is enabled, has
// a carrier, and its operational state is up or unknown.
const runningFlags = unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP

// updateLink updates the state of the link if index is the port's interface. gone says that the
// interface was removed.
func (s *portState) updateLink(index int, flags uint32, gone bool) (c portChange) {
	if index != s.index || s.index == 0 {
		return c
	}
	up := flags&runningFlags == runningFlags && !gone
	c.link = up != s.up
	s.up = up
	return c
}

// updateAddr updates whether a watched address is present. If another interface than before has the
// address now, updateAddr makes it the port's interface (s.index, 0 until one is known).
func (s *portState) updateAddr(m *addrMessage) (c portChange) {
	a := s.find(m)
	switch {
	case a == nil:
		return c
	case a.Addr != m.addr: // an address such as 127.0.0.1/8, which makes a.Addr local, too
		c.interfaceChanged = s.index == 0 && !m.gone
	case m.gone && m.index != s.index && a.present:
		return c // another interface had the same address
	default:
		a.listed, a.inDump = true, !m.gone // endDump compares them with a.present
		if a.present == m.gone {
			a.present = !m.gone
			c.addr = a
		}
		c.interfaceChanged = !m.gone && m.index != s.index
	}
	if c.interfaceChanged {
		s.index = m.index
	}
	return c
}

// find returns the watched address that a message concerns; nil if there is none. For a
// loopback address a message about its network counts too: 127.0.0.1/8 makes all 127.x.x.x local.
func (s *portState) find(m *addrMessage) *watchedAddr {
	for i := range s.addrs {
		if a := &s.addrs[i]; a.Addr == m.addr && (a.zone == 0 || a.zone == m.index) {
			return a
		}
	}
	i := slices.IndexFunc(s.addrs, func(a watchedAddr) bool {
		return a.IsLoopback() && m.addr.IsLoopback() && netip.PrefixFrom(m.addr, m.bits).Contains(a.Addr)
	})
	if i < 0 {
		return nil
	}
	return &s.addrs[i]
}

// endDump is called after an address dump. It reports the addresses that were not in it as gone,
// except those that the kernel never lists, such as a wildcard.
func (s *portState) endDump(report func(portChange)) {
	for i := range s.addrs {
		if a := &s.addrs[i]; a.listed && a.present && !a.inDump {
			a.present = false
			report(portChange{addr: a})
		}
	}
}

// notify reports a change of the link or an address to an observer. A changed interface is not
// reported: portWatch requests its state, which may be a change of the link.
func (s *portState) notify(o link.PortObserver, c portChange) {
	if c.link {
		o.LinkChanged(s.up)
	}
	if c.addr != nil {
		o.AddrChanged(c.addr.original, c.addr.present)
	}
}
