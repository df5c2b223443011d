package agent

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
)

const (
	// maxHandshakes limits the connections in their handshake.
	maxHandshakes = 64
	// maxHandshakesFrom limits those from one IPv4 address or one IPv6 /64 network.
	maxHandshakesFrom = 8
)

// errDisplaced is the error of a handshake that was displaced by newer connections.
var errDisplaced = errors.New("too many unauthenticated connections: the oldest is closed")

// handshakes are the connections that are not authenticated yet. A new connection beyond
// the limit displaces the oldest of its address, or of all: idle connections cannot lock out
// a client with the key, whose handshake is short.
type handshakes struct {
	mu  sync.Mutex
	all []*pending // the oldest first
}

// pending is a connection in its handshake.
type pending struct {
	conn      net.Conn
	from      netip.Prefix
	displaced bool
}

// begin adds a connection whose handshake begins. If there are too many from its network, or in
// all, begin closes the oldest of them.
func (h *handshakes) begin(conn net.Conn) *pending {
	p := &pending{conn: conn, from: networkOf(conn.RemoteAddr())}
	h.mu.Lock()
	defer h.mu.Unlock()
	sameNetwork := 0
	for _, q := range h.all {
		if q.from == p.from {
			sameNetwork++
		}
	}
	switch {
	case sameNetwork >= maxHandshakesFrom:
		h.displace(slices.IndexFunc(h.all, func(q *pending) bool { return q.from == p.from }))
	case len(h.all) >= maxHandshakes:
		h.displace(0)
	}
	h.all = append(h.all, p)
	return p
}

// displace closes and removes connection i.
func (h *handshakes) displace(i int) {
	h.all[i].displaced = true
	h.all[i].conn.Close()
	h.all = slices.Delete(h.all, i, i+1)
}

// end removes a connection after its handshake, and reports whether it was displaced.
func (h *handshakes) end(p *pending) (displaced bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.all, p); i >= 0 {
		h.all = slices.Delete(h.all, i, i+1)
	}
	return p.displaced
}

// networkOf returns the network that maxHandshakesFrom applies to: an IPv4 address or an IPv6 /64.
// Connections other than TCP count as one network.
func networkOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	addr := tcp.AddrPort().Addr().Unmap()
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.WithZone("").Prefix(bits) // an address has that many bits
	return p
}
