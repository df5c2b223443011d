package transport

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/verbs"
)

// Rail is a NIC, with one completion queue for all its queue pairs.
type Rail struct {
	memory.Domain
	Num  int
	Dev  verbs.Context
	Attr verbs.DeviceAttr
	GID  verbs.GID
	MTU  verbs.MTU // the path MTU to all peers
	// AckTimeout is the time after which connections retransmit.
	AckTimeout time.Duration

	// maxDatagram is the length of the longest message of UD: iWARP segments those beyond the MTU.
	maxDatagram int

	iwarp    bool
	addr     netip.Addr
	gidIndex uint8
	channel  verbs.CompChannel
	cq       verbs.CQ
	armed    bool // a completion event is requested
	// reservedCQEs is how many completions can be outstanding. The CQ is never smaller.
	reservedCQEs int
	wcs          [64]verbs.WC
}

// Depths of the completion queue: at first, and of a NIC that cannot resize it, for 400 connections.
const (
	initialCQDepth = 1024
	fixedCQDepth   = 64 << 10
)

// OpenRail opens a rail. After an error the rail must be closed as well.
func OpenRail(num int, nic NIC) (*Rail, error) {
	r := &Rail{Num: num, Dev: nic.Device, AckTimeout: DefaultAckTimeout, addr: nic.Addr, gidIndex: nic.GIDIndex, Domain: memory.Domain{Access: memory.PeerAccess}}
	if err := r.open(); err != nil {
		return r, fmt.Errorf("rail %d (%s): %w", num, r.Dev.Info().Name, err)
	}
	return r, nil
}

// open queries the device's attributes, MTU and GID, and creates the protection domain, the
// completion channel and the CQ. If the device has no atomics, peers get no right to use them.
func (r *Rail) open() (err error) {
	if r.Attr, err = r.Dev.QueryDevice(); err != nil {
		return err
	}
	r.iwarp = r.Dev.Info().Transport == verbs.TransportIWARP
	if !r.Attr.Caps.Has(verbs.CapAtomics) {
		r.Access &^= verbs.AccessRemoteAtomic
	}
	port, err := r.Dev.QueryPort(1)
	if err != nil {
		return err
	}
	r.MTU, r.maxDatagram = port.ActiveMTU, port.ActiveMTU.Bytes()
	if r.iwarp {
		r.maxDatagram = int(port.MaxMsg)
	}
	if r.GID, err = r.queryGID(); err != nil {
		return err
	}
	if r.PD, err = r.Dev.AllocPD(); err != nil {
		return err
	}
	if r.channel, err = r.Dev.CreateCompChannel(); err != nil {
		return err
	}
	depth := initialCQDepth
	if !r.Attr.Caps.Has(verbs.CapResizeCQ) {
		depth = fixedCQDepth
	}
	r.cq, err = r.Dev.CreateCQ(verbs.CQInit{Depth: min(depth, r.Attr.MaxCQE), Channel: r.channel})
	return err
}

// LimitMTU limits the MTU of connections that are made later, and of datagrams, to that of a peer's NIC.
// iWARP segments messages by itself.
func (r *Rail) LimitMTU(peer verbs.MTU) {
	if !r.iwarp {
		r.MTU = min(r.MTU, peer)
	}
}

// queryGID returns the GID of the NIC, by which peers reach it. That of an iWARP NIC is its IP address,
// although kernels derive the GIDs of iWARP from MAC addresses.
func (r *Rail) queryGID() (verbs.GID, error) {
	if r.iwarp && r.addr.IsValid() {
		return verbs.GIDFrom(r.addr), nil
	}
	entry, err := r.Dev.QueryGID(1, int(r.gidIndex))
	return entry.GID, err
}

// HasImmediates reports whether the NIC supports sends with immediate data.
func (r *Rail) HasImmediates() bool { return !r.iwarp }

// IsIWARP reports whether the NIC is one for iWARP: it has no RNR NAK, so that a packet without a
// posted receive ends the connection, and it may complete a request before the peer has the data.
func (r *Rail) IsIWARP() bool { return r.iwarp }

// ReserveCQEs reserves n more entries of the CQ, which grows if needed; a negative n releases them.
func (r *Rail) ReserveCQEs(n int) error {
	need := r.reservedCQEs + n
	if need > r.Attr.MaxCQE && n > 0 {
		return fmt.Errorf("completion queue of %d entries: the NIC has at most %d", need, r.Attr.MaxCQE)
	}
	switch {
	case need <= r.cq.Depth():
	case !r.Attr.Caps.Has(verbs.CapResizeCQ):
		return fmt.Errorf("completion queue of %d entries: %w: the NIC cannot resize one of %d", need, verbs.ErrNotSupported, r.cq.Depth())
	default:
		if err := r.cq.Resize(min(max(2*r.cq.Depth(), need), r.Attr.MaxCQE)); err != nil {
			return fmt.Errorf("completion queue of %d entries: %w", need, err)
		}
	}
	r.reservedCQEs = need
	return nil
}

// Poll polls the completion queue and calls handle for each completion. It stops after a few batches, so that
// a busy rail does not keep the caller from polling the others. It reports whether there was a completion.
func (r *Rail) Poll(handle func(*verbs.WC)) (polled bool, err error) {
	const maxBatches = 4
	for range maxBatches {
		n, err := r.cq.Poll(r.wcs[:])
		if err != nil {
			return polled, fmt.Errorf("rail %d: %w", r.Num, err)
		}
		for i := range n {
			handle(&r.wcs[i])
		}
		if polled = polled || n > 0; n < len(r.wcs) {
			break
		}
	}
	return polled, nil
}

// Arm requests a completion event, unless one is requested already. If pollAgain is true, the
// caller must poll once more, because completions before the request cause no event.
func (r *Rail) Arm() (pollAgain bool, err error) {
	const solicitedOnly = false
	if r.armed {
		return false, nil
	}
	if err := r.cq.ReqNotify(solicitedOnly); err != nil {
		return false, fmt.Errorf("rail %d: %w", r.Num, err)
	}
	r.armed = true
	return true, nil
}

// EventReceived must be called after a completion event: the next Arm requests another.
func (r *Rail) EventReceived() { r.armed = false }

// Wait blocks until a completion event, or returns verbs.ErrTimeout after the time d. Unlike the
// rail's other methods, it may be called by another goroutine. It drops the CQ of the event, which
// can only be r.cq.
func (r *Rail) Wait(d time.Duration) error {
	_, err := r.channel.Wait(d)
	return err
}

// Close closes the completion queue and its channel. The protection domain stays until ClosePD,
// since memory is registered in it.
func (r *Rail) Close() error {
	var errs []error
	if r.cq != nil {
		errs = append(errs, r.cq.Close())
	}
	if r.channel != nil {
		errs = append(errs, r.channel.Close())
	}
	return errors.Join(errs...)
}

// ClosePD closes the protection domain.
func (r *Rail) ClosePD() error {
	if r.PD == nil {
		return nil
	}
	return r.PD.Close()
}

// address returns the address vector of the remote port with a GID.
func (r *Rail) address(gid verbs.GID) verbs.AHAttr {
	const hops = 64
	return verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: gid, SGIDIndex: r.gidIndex, HopLimit: hops}}
}
