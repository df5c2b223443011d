package agent

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
)

const (
	// maxHandshakes is how many connections may be at their handshake.
	maxHandshakes = 64
	// maxHandshakesFrom is how many of them may come from one address, or from one
	// IPv6 network of 64 bits.
	maxHandshakesFrom = 8
)

// errDisplaced is why a connection is closed that has not shown the key in time.
var errDisplaced = errors.New("too many connections that have not shown the key: the oldest is closed")

// handshakes are the connections whose ends have not shown the key yet. One too many
// displaces the oldest of its own address, or the oldest of all: a client with the key
// needs a moment only, so connections that do nothing cannot keep it out.
type handshakes struct {
	mu  sync.Mutex
	all []*pending // the oldest first
}

// pending is a connection at its handshake.
type pending struct {
	conn      net.Conn
	from      netip.Prefix
	displaced bool
}

// begin adds a connection, and closes another if there are too many.
func (h *handshakes) begin(conn net.Conn) *pending {
	p := &pending{conn: conn, from: networkOf(conn.RemoteAddr())}
	h.mu.Lock()
	defer h.mu.Unlock()
	same := 0
	for _, q := range h.all {
		if q.from == p.from {
			same++
		}
	}
	switch {
	case same >= maxHandshakesFrom:
		h.displace(slices.IndexFunc(h.all, func(q *pending) bool { return q.from == p.from }))
	case len(h.all) >= maxHandshakes:
		h.displace(0)
	}
	h.all = append(h.all, p)
	return p
}

func (h *handshakes) displace(i int) {
	h.all[i].displaced = true
	h.all[i].conn.Close()
	h.all = slices.Delete(h.all, i, i+1)
}

// end removes a connection whose handshake is over, and reports whether it was
// displaced before.
func (h *handshakes) end(p *pending) (displaced bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.all, p); i >= 0 {
		h.all = slices.Delete(h.all, i, i+1)
	}
	return p.displaced
}

// networkOf is what counts as one address.
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
	p, _ := addr.WithZone("").Prefix(bits) // it has so many
	return p
}
